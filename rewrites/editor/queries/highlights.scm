; Written by rewrites/tests/editor.rs from the tables of the reader. Later patterns win.

(comment) @comment
(string) @string
(number) @number
(variable) @variable.parameter
(attribute) @property
(dimension) @type
["(" ")" "[" "]" "{" "}"] @punctuation.bracket

; Ops, built in and declared.
(list . (word) @function)
(list . (variable) @function)

; Kinds of variables, classes of element types, and element types.
((word) @type.builtin
 (#any-of? @type.builtin "any" "axes" "axis" "bf16" "bool" "dtype" "f16" "f32" "f64" "f8e4m3" "f8e5m2" "float" "i16" "i32" "i64" "i8" "int" "number" "perm" "shape" "short" "signed" "u16" "u32" "u8" "wide"))

; Promises of rules.
((word) @constant.builtin
 (#any-of? @constant.builtin "exact" "fast" "reassoc" "ulp"))

; Truth values, and words after the type of a tensor.
((word) @constant.builtin
 (#any-of? @constant.builtin "const" "false" "true" "varied"))

; Relations.
((list . (word) @_part (list . (word) @function.builtin))
 (#any-of? @_part "where" "forall" "not")
 (#any-of? @function.builtin "at-most" "axes-last" "axis-last" "between" "broadcast" "broadcasts-to" "concat" "count" "divides" "dtype" "equal" "extent" "gather" "hides" "holds" "identity" "inverts" "is" "last" "mask" "matrix-transpose" "moved" "near" "nonzero" "not" "pad" "permute" "positive" "reduce" "same-count" "shape" "single" "slice" "swap" "trailing" "whole" "window" "windows"))

; Statements of graphs.
((list . (word) @keyword)
 (#any-of? @keyword "const" "dim" "input" "iota" "let" "output" "param" "state" "sub" "update"))

; Parts of rules and of declared ops.
((list . (word) @keyword)
 (#any-of? @keyword "=>" "backend" "canonical" "device" "eq" "forall" "group" "is" "let" "once" "onnx" "phase" "price" "result" "roots" "where"))

; Top-level forms.
((list . (word) @keyword)
 (#any-of? @keyword "graph" "op" "phase" "rule"))

; Names of rules and of declared ops.
((list . (word) @keyword . (word) @label)
 (#any-of? @keyword "rule" "op"))
