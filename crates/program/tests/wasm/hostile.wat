;; Does what the event's type tells it to do, all of it harmful: the first byte of the type decides.
(module
  (@custom "orlog.manifest" "MANIFEST")
  (memory (export "memory") 2)
  (table $table 1 funcref)
  (global $free (mut i32) (i32.const 1024))
  (func $deeper (param i32) (result i32)
    (i32.add (i32.const 1) (call $deeper (local.get 0))))
  (func (export "alloc") (param $length i32) (result i32)
    (global.get $free)
    (global.set $free (i32.add (global.get $free) (local.get $length))))
  (func (export "apply") (param $state i32) (param $state_length i32) (param $input i32) (param $length i32) (result i64)
    (local $what i32)
    ;; The state of this saga is one letter in quotes.
    (local.set $what (i32.load8_u (i32.add (local.get $state) (i32.const 1))))
    (if (i32.eq (local.get $what) (i32.const 0x6c)) ;; l: loops
      (then (loop $for_ever (br $for_ever))))
    (if (i32.eq (local.get $what) (i32.const 0x66)) ;; f: fills memory again and again
      (then (loop $for_ever (memory.fill (i32.const 0) (i32.const 1) (i32.const 131072)) (br $for_ever))))
    (if (i32.eq (local.get $what) (i32.const 0x67)) ;; g: grows to the cap and beyond
      (then (loop $for_ever (drop (memory.grow (i32.const 1))) (br $for_ever))))
    (if (i32.eq (local.get $what) (i32.const 0x74)) ;; t: grows its table
      (then (drop (table.grow $table (ref.null func) (i32.const 1000000)))))
    (if (i32.eq (local.get $what) (i32.const 0x72)) ;; r: recurses
      (then (drop (call $deeper (i32.const 0)))))
    (if (i32.eq (local.get $what) (i32.const 0x6f)) ;; o: an answer outside its memory
      (then (return (i64.const 0x7fffffff_00000010))))
    (if (i32.eq (local.get $what) (i32.const 0x62)) ;; b: an answer that is too big
      (then (return (i64.const 0x00000000_7fffffff))))
    unreachable))
