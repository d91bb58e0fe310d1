/**
 * @file Rule files (*.rules) and graph files (*.graph) of Eutectic, for tree-sitter
 * @license MIT OR Apache-2.0
 */

/// <reference types="tree-sitter-cli/dsl" />
// @ts-check

// The syntax is that of the reader in ir/src/lang/sexp.rs: words end at white space, a bracket, a quote or a semicolon.
const REST = /[^\s()\[\]{}";]*/.source;

module.exports = grammar({
  name: "eutectic",

  extras: $ => [/[\s\uFEFF]/, $.comment],

  rules: {
    source_file: $ => repeat($._expression),

    _expression: $ => choice($.list, $.type, $.brackets, $.constant, $.string, $._atom),

    _atom: $ => choice($.variable, $.attribute, $.number, $.dimension, $.word),

    // (head item …)
    list: $ => seq("(", repeat($._expression), ")"),

    // F[B.. M K], f32[2 3]: the bracket is directly after the word.
    type: $ => seq(field("element", $._atom), token.immediate(prec(1, "[")), repeat($._expression), "]"),

    // [-1 -2]
    brackets: $ => seq("[", repeat($._expression), "]"),

    // { 1.0 2.0 }
    constant: $ => seq("{", repeat($._expression), "}"),

    string: _ => /"([^"\\]|\\[\s\S])*"/,

    // The longest match wins, and of equal ones the first: `1x` and `infinity` are words.

    // ?x, ?w..
    variable: _ => new RegExp("\\?" + REST),

    // :axis
    attribute: _ => new RegExp(":" + REST),

    number: _ => /[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|[+-]?inf|nan/,

    // B.., M, F: dimensions, sequences of dimensions and element types
    dimension: _ => /[A-Z][A-Za-z0-9_]*(\.\.)?/,

    word: _ => /[^\s()\[\]{}";?:][^\s()\[\]{}";]*/,

    comment: _ => token(/;[^\n]*/),
  },
});
