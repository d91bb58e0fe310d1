//! Compiles a C program that uses the header with all warnings as errors, links it with the library, and runs it.

use std::{
    env::consts::{DLL_PREFIX, DLL_SUFFIX},
    path::{Path, PathBuf},
    process::Command,
};

use eutectic::{Compiler, Cpu, ModelFile, Tensor};

/// Returns the folder of the library, which cargo builds with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let has_library = |folder: &&Path| folder.join(format!("{DLL_PREFIX}eutectic_c{DLL_SUFFIX}")).exists();
    let folders = [deps, deps.parent().unwrap()];
    folders.into_iter().find(has_library).unwrap_or_else(|| panic!("no library in {folders:?}")).to_path_buf()
}

/// Runs a command, and returns what it prints.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn a_program_in_c_opens_and_runs_a_model() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = here.join("../../models/golden/onnx/mlp-new.onnx");
    let (include, library) = (here.join("include"), library());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("program");
    let source = here.join("tests/program.c");
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(&include)
        .arg(&source)
        .arg("-o")
        .arg(&program);
    compile.arg("-L").arg(&library).arg("-leutectic_c").arg(format!("-Wl,-rpath,{}", library.display()));
    output(&mut compile);
    let text = output(Command::new(&program).arg(&model));

    let mut model = ModelFile::new(&model).dim("batch", 2).open(&Compiler::new(Cpu::default()).unwrap()).unwrap();
    let input = model.inputs()[0].0.clone();
    let x = Tensor::from_f32(&[2, 12], &[1.0; 24]).unwrap();
    let y = model.run(&[(&input, x)]).unwrap()[0].to_f64();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("version {}", env!("CARGO_PKG_VERSION")));
    let errors: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("error: ")).collect();
    let says = [
        "nowhere.onnx",
        "path",
        "batch",
        "`batch` to the range from 3 to 1",
        "nothing",
        &input,
        "96",
        "element type",
        "NULL",
    ];
    assert_eq!(
        lines.iter().find(|line| line.starts_with("input")),
        Some(&&*format!("input 1: {input}, type 8, 2 axes of 2 and 12"))
    );
    let got = lines.iter().find_map(|line| line.strip_prefix("output ")?.split_once(": ")).expect("an output").1;
    let got: Vec<f64> = got.split(' ').map(|number| number.parse::<f32>().unwrap().into()).collect();
    assert_eq!(got, y);
    for said in says {
        assert!(errors.iter().any(|error| error.contains(said)), "{said}: {errors:#?}");
    }
}

#[test]
fn the_header_is_one_of_cpp_too() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/eutectic.h");
    output(
        Command::new("c++")
            .args(["-Wall", "-Werror", "-Wno-pragma-once-outside-header", "-fsyntax-only", "-x", "c++"])
            .arg(header),
    );
}
