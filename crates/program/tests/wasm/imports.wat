;; Has imports.
(module
  (@custom "orlog.manifest" "MANIFEST")
  (import "env" "abort" (func (param i32 i32 i32 i32)))
  (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "alloc") (param i64) (result i32) (i32.const 1024)))
