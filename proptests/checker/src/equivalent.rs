//! Mutants that are as right as the rule: what was changed, and why it changes nothing.

const SHIFT: &str = "a softmax is the same for any shift; only overflow tells, which few instances reach";

const SMALL: &str = "exp-normal promises no more than that results below e⁻⁸⁷ may be 0";

const UNMASKED: &str = "without a mask, no row of scores is −∞ for finite operands";

const SAME_PARTS: &str =
    "the first reduction has the same parts in the same order, and the reshape that follows has its own axes";

const BESIDE: &str = "what 2⁹² is lost beside, −2⁹² is lost beside, too";

const MERGED: &str = "these axes lie side by side from here on, and become one again";

const SIGN: &str = "it changes only the sign of a zero, which is open in a sum";

/// A part of the rule's name, a part of the change, and the reason.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("", ":softcap of attention is a number negated", "c·tanh(x/c) is the same for −c"),
    ("", ":softcap of attention-tf32 is a number negated", "c·tanh(x/c) is the same for −c"),
    ("", ":softcap of sdpa is a number negated", "c·tanh(x/c) is the same for −c"),
    ("", ":softcap of mha is a number negated", "c·tanh(x/c) is the same for −c"),
    ("", ":softcap of attention-block is a number negated", "c·tanh(x/c) is the same for −c"),
    ("", ":window of sdpa is a number negated", "the window of these masks is 0"),
    ("", ":window of attention-block is a number negated", "the window of these masks is 0"),
    ("", ":style of attention-block is adjacent", "nothing is rotated here"),
    ("", "?none: ", "a tensor without elements has no values"),
    ("decompose/sdpa", ":empty of attention is zeros", UNMASKED),
    ("fuse/attention", ":empty of attention is zeros", UNMASKED),
    ("", ":empty of attention is guarded", "of finite operands, only rows of −∞ have weights that are NaN"),
    ("", ":empty of attention-tf32 is guarded", "of finite operands, only rows of −∞ have weights that are NaN"),
    ("fuse/attention-guarded-alone", ":empty of attention is nan", UNMASKED),
    ("fuse/attention-guarded-scale", ":empty of attention is nan", UNMASKED),
    ("decompose/sdpa-", "a number plus 1", "−∞ + 1 is −∞, and softmax is not changed by a summand"),
    ("fuse/mask-", "a number plus 1", "−∞ + 1 is −∞, and softmax is not changed by a summand"),
    ("fuse/attention-where", "a number plus 1", "−∞ + 1 is −∞, and softmax is not changed by a summand"),
    ("unfuse/attention-", "?hides: a number plus 1", "2⁹² + 1 is lost beside a number that hides scores"),
    ("unfuse/attention-", "?hides: a number negated", BESIDE),
    ("unfuse/attention-", "?hides: sub for add", BESIDE),
    ("unfuse/attention-", "?hides: le for eq", "a sum with a positive number is not less than the other summand"),
    ("unfuse/attention-", "?met: a number plus 1", "−∞ + 1 is −∞"),
    ("unfuse/attention-", "?whole: a number plus 1", "∞ + 1 is ∞"),
    ("unfuse/attention-", "root 0: a number negated, NaN as operand 1 of where", "the sign of NaN is open"),
    ("unfuse/attention-", "root 0: a number plus 1, NaN as operand 1 of where", "NaN + 1 is NaN"),
    ("unfuse/attention-", "root 0: a number plus 1, 0 as operand 2 of where", "a value that is hidden has no weight"),
    ("unfuse/attention-", "root 0: a number plus 1, -inf as operand 1 of eq", "−∞ + 1 is −∞"),
    ("unfuse/attention-", "root 0: ne for gt", "a count is not negative"),
    ("fuse/add-", "operands 0 and 1 of add-", "a sum is the same in both orders"),
    ("decompose/softmax", "?e: −exp", "(−e)/Σ(−e) = e/Σe"),
    ("decompose/softmax", "?e: −reduce-max", SHIFT),
    ("decompose/softmax", "?e: add for sub", SHIFT),
    ("decompose/softmax", "?e: −?x in reduce-max", SHIFT),
    ("simplify/div-softmax", "?e: −exp-normal", "(−e)·(1/Σ(−e)) = e·(1/Σ e)"),
    ("", "exp-normal for exp", SMALL),
    ("", "exp for exp-normal", SMALL),
    ("simplify/softmax-of-reciprocal", "?e: −exp", "(−e)/Σ(−e) = e/Σ e"),
    ("decompose/ranking", "xor for or", "no two of these conditions hold at once"),
    ("decompose/ranking", "?equal: le for eq", "a smaller element comes before in any case"),
    (
        "decompose/ranking",
        "?equal: operand 0 instead of and",
        "if only one of the two is NaN, the other one comes before in any case",
    ),
    (
        "decompose/ranking-descending",
        "?equal: operand 1 instead of and",
        "if only one is NaN, it comes before in any case",
    ),
    ("decompose/ranking-int", "?before: le for eq", "a smaller element comes before in any case"),
    ("decompose/ranking", ":keep of reduce-sum is false", "the reshape that follows takes the axis away"),
    ("decompose/scatter-", ":keep of reduce-", "the reshape that follows takes the axis away"),
    ("decompose/scatter-sum", "?tells: operand 0 instead of or", SIGN),
    ("decompose/scatter-sum", "?tells: operand 1 instead of gt", SIGN),
    ("decompose/scatter-sum", "?tells: lt for gt", SIGN),
    ("decompose/scatter-sum", "?tells: eq for gt", SIGN),
    ("decompose/scatter-sum", "?tells: ne for gt", SIGN),
    ("decompose/scatter-sum", "root 0: ne for gt", "a count is not negative"),
    ("decompose/scatter-sum", "?tells: operands 0 and 1 of gt swapped", SIGN),
    ("decompose/scatter-sum", "div", SIGN),
    ("decompose/scatter-sum", "?tells: a number plus 1, 0 as operand 1 of gt", SIGN),
    ("decompose/scatter-sum", "?tells: a number plus 1, 0 as operand 1 of ne", "1/1 is more than 0"),
    ("decompose/scatter-sum", "?any: operand 0 instead of and", SIGN),
    ("decompose/scatter-sum", "?any: operand 1 instead of and", SIGN),
    ("decompose/scatter-sum", "?any: or for and", SIGN),
    ("decompose/scatter-sum", "?any: reduce-sum for reduce-max", "a count is more than 0 where one holds"),
    ("decompose/scatter-sum", "root 0: operand 1 instead of where", SIGN),
    ("simplify/pow-half", "le for eq", "nothing is less than −∞"),
    ("simplify/pow-minus-half", "le for eq", "nothing is less than −∞"),
    ("decompose/log-softmax", "?s: −reduce-max", SHIFT),
    ("decompose/log-softmax", "?s: add for sub", SHIFT),
    ("decompose/log-softmax", "?s: −?x in reduce-max", SHIFT),
    ("decompose/log-softmax", "?s: reduce-min for reduce-max", SHIFT),
    ("decompose/log-softmax", "?s: reduce-sum for reduce-max", SHIFT),
    ("", "−?x in abs", "|−x| = |x|"),
    ("", "−?v in abs", "|−v| = |v|"),
    ("", "−?x in cos", "cos(−x) = cos x"),
    ("", "operand 0 instead of expand", "a lone number is expanded to what it replaces"),
    ("simplify/sub-same", "−expand", "0 is −0 in integers"),
    ("fuse/glu-bilinear", ":gate of glu is", "of two halves times each other either is the gate"),
    ("fuse/glu-bilinear", "−?p in glu", "(−u)·(−v) = u·v"),
    ("fuse/glu-function-first[tanh]", "−?p in glu", "(−u)·tanh(−v) = u·tanh v"),
    ("fuse/glu-function-second[tanh]", "−?p in glu", "(−u)·tanh(−v) = u·tanh v"),
    ("simplify/even", "−?x in even", "f(−x) = f(x)"),
    ("unfuse/sum-by-axis", " is [-2]", "either axis may go first"),
    ("unfuse/extremum-by-axis", " is [-2]", "either axis may go first"),
    ("unfuse/sum-by-axis", "operand 0 instead of reduce-", "without the first reduction, it is the left side"),
    ("unfuse/extremum-by-axis", "operand 0 instead of reduce-", "without the first reduction, it is the left side"),
    ("unfuse/split-sum", ":keep of reduce-", "the reshape that follows takes the axis away"),
    ("unfuse/split-extremum", ":keep of reduce-", "the reshape that follows takes the axis away"),
    ("unfuse/split-sum", ":shape of reshape is with axes 0 and 1 swapped", SAME_PARTS),
    ("unfuse/split-extremum", ":shape of reshape is with axes 0 and 1 swapped", SAME_PARTS),
    ("fuse/variance", "?c: ", "c·c is the same for −c"),
    ("simplify/reshape-reduce", ":keep of reduction", "the reshape that follows puts the axis back"),
    ("unfuse/attention-softcap-zeros", "le for eq", "nothing is less than −∞"),
    (
        "unfuse/attention-softcap-zeros",
        "operand 0 instead of reduce-max",
        "the weight of a score of −∞ is 0 in any row",
    ),
    (
        "simplify/flat-matmul",
        "operand 0 instead of reshape",
        "the reshape after the product is then of the shape that is there",
    ),
    ("decompose/short-mean", "operand 0 instead of cast", "the reference rounds a composite once, whatever its type"),
    ("decompose/short-rows", "operand 0 instead of cast", "the reference rounds a composite once, whatever its type"),
    ("decompose/conv-groups", "?groups: :shape of reshape is with axes 0 and 1 swapped", MERGED),
    ("decompose/conv-groups", "?weights: :shape of reshape is with axes 3 and 4 swapped", MERGED),
    ("decompose/conv-groups", "?y: :shape of reshape is with axes 1 and 2 swapped", MERGED),
    ("decompose/conv-groups", "?y: :shape of reshape is with axes 2 and 3 swapped", MERGED),
    ("decompose/conv-transpose", "?apart: :shape of reshape is with axes 0 and 1 swapped", MERGED),
    ("decompose/conv-transpose", "?apart: :shape of reshape is with axes 1 and 2 swapped", MERGED),
    ("decompose/conv-transpose", "?weights: :shape of reshape is with axes 3 and 4 swapped", MERGED),
    ("decompose/group-norm", "?r: :shape of reshape is with axes 0 and 1 swapped", MERGED),
    (
        "decompose/conv-transpose-apart",
        "?rows: operand 0 instead of reshape",
        "the reshape after the product is of as many rows, however many axes they lie along",
    ),
    ("unfuse/attention-bias-zeros", "le for eq", "nothing is less than −∞"),
    ("simplify/mul-zero", "", "0 is −0 in integers, and a lone number is expanded to what it replaces"),
    ("decompose/conv-winograd", ":step of slice is 2", "after one element there is no next one"),
    ("decompose/conv-winograd", "?g: :shape of reshape is with axes 2 and 3 swapped", MERGED),
    (
        "simplify/rows-of-",
        "root 0: operand 0 instead of reshape",
        "a product with a matrix has as many rows, however many axes they lie along",
    ),
    (
        "fold/",
        "operand 0 instead of reshape",
        "a reshape that only takes a leading axis of extent 1 away broadcasts the same",
    ),
];

/// Why a mutant cannot be told from its rule.
pub fn reason(rule: &str, what: &str) -> Option<&'static str> {
    EQUIVALENT.iter().find(|(r, w, _)| rule.starts_with(r) && what.contains(w)).map(|(.., reason)| *reason)
}
