//! Tests the disk cache: kernels are right, whatever its files contain.

use std::{fs, path::PathBuf};

use eutectic_vulkan::VulkanOptions;

use crate::{CHAINS, Ready, bare, graph, open, planned};

#[test]
fn a_cache_that_is_broken_or_of_others_is_no_error() {
    let folder = std::env::temp_dir().join(format!("eutectic-vulkan-cache-{}", std::process::id()));
    let options = || VulkanOptions { cache: Some(folder.clone()), ..bare() };
    let files = || -> Vec<PathBuf> {
        let mut all: Vec<_> =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        all.sort();
        all
    };
    let run = || -> Option<Vec<Vec<u8>>> {
        let device = open(options())?;
        let ready = Ready::new(&device, &planned(&graph(CHAINS)));
        let outputs = ready.run(&mut *ready.session());
        drop(ready);
        let messages = device.into_device().expect("nothing uses it any more").close();
        assert_eq!(messages, Vec::<String>::new());
        Some(outputs)
    };
    let Some(want) = run() else { return };
    let kept = files();
    let of = |extension: &str| kept.iter().filter(|file| file.extension().is_some_and(|e| e == extension)).count();
    assert!(of("spv") > 0 && of("pipelines") == 1, "{kept:?}");
    assert_eq!(run().as_ref(), Some(&want), "from the cache");
    for round in 0..3 {
        for (n, file) in files().iter().enumerate() {
            let mut bytes = fs::read(file).expect("it was there");
            match (round + n) % 3 {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes = b"somebody else's".to_vec(),
                _ => bytes.iter_mut().skip(20).step_by(7).for_each(|byte| *byte ^= 0x55),
            }
            fs::write(file, bytes).expect("it can be written");
        }
        assert_eq!(run().as_ref(), Some(&want), "from what is broken");
        assert_eq!(files(), kept);
    }
    fs::remove_dir_all(&folder).expect("it can be removed");
}
