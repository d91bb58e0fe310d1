//! Tests that each package has its licences, because no compiler notices a missing one. Cargo packs only files in the
//! crate's folder.

use std::{fs, path::Path};

/// Returns the folders of the workspace's crates, as its manifest lists them.
fn members(root: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the workspace has a manifest");
    let line = manifest.lines().find(|line| line.starts_with("members = ")).expect("members are listed on one line");
    line.split('"').skip(1).step_by(2).map(String::from).collect()
}

#[test]
fn packages_hold_the_licences_that_they_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let members = members(&root);
    assert!(members.len() > 10 && members.iter().any(|name| name == "backends/cpu"), "{members:?}");
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let text = fs::read(root.join(name)).expect("the workspace has its licences");
        for member in &members {
            let copy = fs::read(root.join(member).join(name)).unwrap_or_else(|e| panic!("{member}/{name}: {e}"));
            assert!(copy == text, "{member}/{name} differs from the workspace's; make it a link to that");
        }
    }
}
