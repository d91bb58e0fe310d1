//! Checks that loading and dropping programs, and many runs, leak nothing: objects, which the layers count, memory, or
//! open files.

use std::{fs, thread, time::Instant};

use eutectic_gpu::Gpu;
use eutectic_vulkan::{Vulkan, on};

use crate::{CHAINS, Ready, bare, graph, open, planned};

/// Returns the memory of the process in KiB, and the number of open files.
fn held() -> [i64; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    [line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0), files as i64]
}

/// Checks that running a function `times` times leaks nothing. The first tenth may fill caches.
fn does_not_grow(device: &Gpu<Vulkan>, what: &str, times: usize, most: i64, mut run: impl FnMut(usize)) {
    let start = Instant::now();
    (0..times / 10).for_each(&mut run);
    let (before, buffers) = (held(), device.device().buffers());
    (times / 10..times).for_each(&mut run);
    let (after, seconds) = (held(), start.elapsed().as_secs_f64());
    let [memory, files] = [0, 1].map(|n| after[n] - before[n]);
    println!("{times} {what} in {seconds:.1} s: {memory} KiB, {files} open files, of {} KiB", after[0]);
    assert_eq!(device.device().buffers(), buffers, "{what}: buffers");
    assert!(memory <= most && files <= 0, "{what}: {memory} KiB more, {files} open files");
}

#[test]
fn nothing_is_left_when_a_device_is_closed() {
    let Some(device) = open(bare()) else { return };
    let program = planned(&graph(CHAINS));
    let before = device.device().buffers();
    for _ in 0..5 {
        let ready = Ready::new(&device, &program);
        let mut session = ready.session();
        let want = ready.run(&mut *session);
        let mut fork = session.fork().unwrap_or_else(|e| panic!("{e}"));
        drop(session);
        assert_eq!(ready.run(&mut *fork), want);
        let mut times = Vec::new();
        let inputs: Vec<_> = ready.inputs.iter().map(|input| eutectic_backend::Input::Host(input.bytes())).collect();
        let mut out = vec![0; ready.sizes[0]];
        let mut outputs = [eutectic_backend::Output::Host(&mut out)];
        fork.execute(&inputs, &mut outputs, Some(&mut times)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(times.len(), program.run.len());
        assert!(out == want[0] && times.iter().all(|time| (0.0..1.0).contains(time)), "{times:?}");
    }
    assert_eq!(device.device().buffers(), before);
    let messages = device.into_device().expect("nothing uses it any more").close();
    assert_eq!(messages, Vec::<String>::new());
}

#[test]
fn four_sessions_on_four_threads_give_the_same_bits() {
    let Some(device) = open(bare()) else { return };
    let ready = Ready::new(&device, &planned(&graph(CHAINS)));
    let want = ready.run(&mut *ready.session());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = ready.session();
                (0..50).for_each(|_| assert_eq!(ready.run(&mut *session), want));
            });
        }
    });
    assert_eq!(device.device().messages(), Vec::<String>::new());
}

#[test]
#[ignore = "takes minutes"]
fn a_thousand_programs_and_a_hundred_thousand_runs_leave_nothing() {
    // Validation layers are off, because they keep records of all objects.
    let Ok(device) = on(&bare()) else { return };
    let program = planned(&graph(CHAINS));
    let want = {
        let ready = Ready::new(&device, &program);
        ready.run(&mut *ready.session())
    };
    does_not_grow(&device, "compiled, run and dropped", 1000, 8 << 10, |_| {
        let ready = Ready::new(&device, &program);
        assert_eq!(ready.run(&mut *ready.session()), want);
    });
    let ready = Ready::new(&device, &program);
    let mut session = ready.session();
    does_not_grow(&device, "runs", 100_000, 1 << 10, |_| assert_eq!(ready.run(&mut *session), want));
    let mut fork = session.fork().unwrap_or_else(|e| panic!("{e}"));
    does_not_grow(&device, "forks", 1000, 1 << 10, |_| {
        let mut twin = fork.fork().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(ready.run(&mut *twin), want);
    });
}
