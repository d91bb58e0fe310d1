//! Builds covering arrays: few rows that contain each pair of levels of two factors.
//!
//! Most wrong rules fail with one property of a case, or with a pair. Examples are an element type with a kind of
//! numbers, and a kind of numbers with an empty axis (Kuhn, Wallace, Gallo: Software fault interactions and
//! implications for software testing, 2004). Random cases would miss some of these pairs, depending on the seed.

/// Returns rows for factors with these numbers of levels. Each pair of levels of two factors is in some row. The
/// construction is the greedy one of AETG (Cohen, Dalal, Fredman, Patton, 1997), without its random choices.
pub fn pairs(levels: &[usize]) -> Vec<Vec<usize>> {
    let count = levels.len();
    let mut uncovered: Vec<(usize, usize, usize, usize)> = Vec::new();
    for a in 0..count {
        for b in a + 1..count {
            uncovered.extend((0..levels[a]).flat_map(|i| (0..levels[b]).map(move |j| (a, i, b, j))));
        }
    }
    let mut rows = Vec::new();
    // The number of uses of each level. It breaks ties between levels that cover equally many new pairs.
    let mut used: Vec<Vec<usize>> = levels.iter().map(|n| vec![0; *n]).collect();
    if count == 1 {
        return (0..levels[0]).map(|n| vec![n]).collect();
    }
    while let Some(&(a, i, b, j)) = uncovered.first() {
        let mut row: Vec<Option<usize>> = vec![None; count];
        (row[a], row[b]) = (Some(i), Some(j));
        for factor in 0..count {
            if row[factor].is_some() {
                continue;
            }
            let gain = |level: usize| {
                let covers = |&&(a, i, b, j): &&(usize, usize, usize, usize)| {
                    a == factor && i == level && row[b] == Some(j) || b == factor && j == level && row[a] == Some(i)
                };
                uncovered.iter().filter(covers).count()
            };
            let best = (0..levels[factor])
                .max_by_key(|&level| (gain(level), std::cmp::Reverse(used[factor][level]), std::cmp::Reverse(level)));
            row[factor] = best;
        }
        let row: Vec<usize> = row.into_iter().map(Option::unwrap_or_default).collect();
        row.iter().enumerate().for_each(|(factor, level)| used[factor][*level] += 1);
        uncovered.retain(|&(a, i, b, j)| row[a] != i || row[b] != j);
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_in_some_row_and_there_are_few_rows() {
        for (levels, most) in
            [(&[4, 9, 6][..], 60), (&[10, 9, 6], 100), (&[2, 2, 2, 2, 2, 2], 9), (&[5, 1], 5), (&[3], 3)]
        {
            let rows = pairs(levels);
            assert!(rows.len() <= most, "{levels:?}: {}", rows.len());
            for a in 0..levels.len() {
                for b in a + 1..levels.len() {
                    for (i, j) in (0..levels[a]).flat_map(|i| (0..levels[b]).map(move |j| (i, j))) {
                        assert!(rows.iter().any(|row| row[a] == i && row[b] == j), "{levels:?}: {a}={i}, {b}={j}");
                    }
                }
            }
        }
    }
}
