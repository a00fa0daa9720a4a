;; Exports its manifest as a function; BODY runs before the function returns.
(module
  (memory (export "memory") 1)
  (data (i32.const 4096) "MANIFEST")
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "manifest") (result i64)
    BODY
    (i64.or (i64.shl (i64.const 4096) (i64.const 32)) (i64.const LENGTH)))
  (func (export "apply") (param i32 i32 i32 i32) (result i64) (i64.const 0)))
