//! The files of each package that no compiler asks for: cargo packs the files below a crate's folder, and none from
//! above it.

use std::{fs, path::Path};

/// Returns the folders of the workspace's crates, as its manifest lists them.
fn members(root: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the manifest of the workspace");
    let line = manifest.lines().find(|line| line.starts_with("members = ")).expect("a list on one line");
    line.split('"').skip(1).step_by(2).map(String::from).collect()
}

#[test]
fn packages_hold_the_licences_that_they_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let members = members(&root);
    assert!(members.len() > 10 && members.iter().any(|name| name == "backends/cpu"), "{members:?}");
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let text = fs::read(root.join(name)).expect("the workspace has it");
        for member in &members {
            let copy = fs::read(root.join(member).join(name)).unwrap_or_else(|e| panic!("{member}/{name}: {e}"));
            assert!(copy == text, "{member}/{name} is another text; it is a link to that of the workspace");
        }
    }
}
