;; The start function BODY runs for each module instance.
(module
  (@custom "orlog.manifest" "MANIFEST")
  (memory (export "memory") 1)
  (func $start BODY)
  (start $start)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "apply") (param i32 i32 i32 i32) (result i64) (i64.const 0)))
