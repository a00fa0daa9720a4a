;; Calls a function with many local variables forever: clearing them takes time and must consume fuel.
(module
  (@custom "orlog.manifest" "MANIFEST")
  (memory (export "memory") 2)
  (func $many LOCALS (local.set 0 (i64.const 1)))
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "apply") (param i32 i32 i32 i32) (result i64)
    (loop $forever (call $many) (br $forever))
    (i64.const 0)))
