//! Products whose left operand is windows of padded images, against sums in f64: sizes, strides, gaps and borders at random, with
//! the channels last and first, and in groups.

mod support;

use eutectic_backend::{AnchorKernel, Instr};
use eutectic_ir::DType;
use support::{
    build::{Build, body, push, row_major},
    check_with,
    windows::{Line, windows},
};

fn case(seed: u64, dtype: DType) {
    let mut build = Build::new(seed);
    let random = &mut build.random;
    let lines = [Line::random(random), Line::random(random)];
    let groups = random.pick(&[1, 1, 1, 2]);
    let sizes = [groups, 1 + random.below(2), random.pick(&[1, 2, 3, 5, 16, 33])];
    let (last, n) = (random.below(3) > 0, random.pick(&[1, 2, 7, 33, 64]));
    let lhs = windows(&mut build, &lines, sizes, last, dtype);
    let (m, k) = (lhs.domain[1], lhs.domain[2]);
    let mut rhs = body(&[groups, k, n]);
    let w = build.dense(&mut rhs, dtype);
    rhs.results = vec![w];
    let domain = [groups, m, n];
    let mut b = body(&domain);
    let y = push(&mut b, Instr::Anchor { dtype });
    build.store_at(domain.iter().product(), row_major(&domain), dtype, y);
    let (kernel, inputs) = build.kernel(AnchorKernel::Contraction { lhs, rhs }, b);
    for params in 0..2 {
        check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
    }
}

#[test]
fn windows_are_copied_as_they_are_needed() {
    (0..150).for_each(|seed| case(seed, DType::F32));
    (150..180).for_each(|seed| case(seed, DType::F64));
}

/// Sums in several parts, and right operands that are packed at once and panel by panel.
#[test]
fn windows_of_many_channels() {
    for (seed, channels, n) in [(1, 130, 300), (2, 200, 40)] {
        let mut build = Build::new(seed);
        let line = || Line { extent: 7, before: 1, after: 1, size: 3, stride: 1, dilation: 1 };
        let lhs = windows(&mut build, &[line(), line()], [1, 1, channels], true, DType::F32);
        let (m, k) = (lhs.domain[1], lhs.domain[2]);
        let mut rhs = body(&[1, k, n]);
        let w = build.dense(&mut rhs, DType::F32);
        rhs.results = vec![w];
        let mut b = body(&[1, m, n]);
        let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        build.store_at(m * n, row_major(&[1, m, n]), DType::F32, y);
        let (kernel, inputs) = build.kernel(AnchorKernel::Contraction { lhs, rhs }, b);
        check_with(&kernel, &inputs, 1, 8.0 + 4.0 * k as f64);
    }
}
