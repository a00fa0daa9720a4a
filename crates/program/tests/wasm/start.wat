;; Its start function BODY runs whenever it is instantiated.
(module
  (@custom "orlog.manifest" "MANIFEST")
  (memory (export "memory") 1)
  (func $begin BODY)
  (start $begin)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "apply") (param i32 i32 i32 i32) (result i64) (i64.const 0)))
