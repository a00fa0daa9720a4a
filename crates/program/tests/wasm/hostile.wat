;; Misbehaves in the way that the first character of the state selects.
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
    (local $mode i32)
    ;; The state is a JSON string.
    (local.set $mode (i32.load8_u (i32.add (local.get $state) (i32.const 1))))
    (if (i32.eq (local.get $mode) (i32.const 0x6c)) ;; l: loops forever
      (then (loop $forever (br $forever))))
    (if (i32.eq (local.get $mode) (i32.const 0x66)) ;; f: fills memory forever
      (then (loop $forever (memory.fill (i32.const 0) (i32.const 1) (i32.const 131072)) (br $forever))))
    (if (i32.eq (local.get $mode) (i32.const 0x67)) ;; g: grows memory beyond the limit
      (then (loop $forever (drop (memory.grow (i32.const 1))) (br $forever))))
    (if (i32.eq (local.get $mode) (i32.const 0x74)) ;; t: grows the table
      (then (drop (table.grow $table (ref.null func) (i32.const 1000000)))))
    (if (i32.eq (local.get $mode) (i32.const 0x72)) ;; r: recurses
      (then (drop (call $deeper (i32.const 0)))))
    (if (i32.eq (local.get $mode) (i32.const 0x6f)) ;; o: output outside the memory
      (then (return (i64.const 0x7fffffff_00000010))))
    (if (i32.eq (local.get $mode) (i32.const 0x62)) ;; b: output that is too large
      (then (return (i64.const 0x00000000_7fffffff))))
    unreachable))
