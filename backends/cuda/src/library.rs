//! Matrix products by cuBLASLt, loaded at run time.

use std::{
    ffi::c_void,
    sync::{Mutex, PoisonError},
};

use cudarc::{
    cublaslt::{result, sys},
    driver,
};
use eutectic_backend::BackendError;
use eutectic_gpu::launch::{BEFORE_SLOTS, Launch, MatrixLayout, Product};
use eutectic_ir::DType;

use crate::{kernels::LIBRARY_BYTES, nvrtc};

/// A handle of cuBLASLt.
pub struct Library(sys::cublasLtHandle_t);

// SAFETY: cuBLASLt's handles may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: cuBLASLt's handles may be used from any thread.
unsafe impl Sync for Library {}

/// A product with the algorithm that the library has chosen for it.
pub struct PlannedProduct {
    library: std::sync::Arc<Library>,
    product: Product,
    /// Locked while a product with a bias is enqueued, because the description holds the bias's address.
    description: Mutex<sys::cublasLtMatmulDesc_t>,
    /// The layouts of the right operand, the left operand, the added matrix and the result. All are transposed, because
    /// the library's matrices are column-major.
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: layouts are only read after their creation, and the description is behind a mutex.
unsafe impl Send for PlannedProduct {}
// SAFETY: layouts are only read after their creation, and the description is behind a mutex.
unsafe impl Sync for PlannedProduct {}

impl Library {
    /// Opens the library in the context of this thread.
    ///
    /// # Errors
    /// Returns an error if the library is missing, with the names that were searched, or if it cannot be initialised.
    pub fn new() -> Result<Library, String> {
        // SAFETY: loading the library runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            return Err(format!("cuBLASLt is missing; searched for {}", nvrtc::places("cublasLt").concat()));
        }
        result::create_handle().map(Library).map_err(|e| format!("cannot initialise cuBLASLt: {e:?}"))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: `new` created the handle, and its last user is gone.
        unsafe { _ = result::destroy_handle(self.0) };
    }
}

fn element(dtype: DType) -> Result<sys::cudaDataType, String> {
    match dtype {
        DType::F16 => Ok(sys::cudaDataType::CUDA_R_16F),
        DType::Bf16 => Ok(sys::cudaDataType::CUDA_R_16BF),
        DType::F32 => Ok(sys::cudaDataType::CUDA_R_32F),
        DType::F64 => Ok(sys::cudaDataType::CUDA_R_64F),
        other => Err(format!("cuBLASLt cannot multiply matrices of {other}")),
    }
}

fn failed(error: result::CublasError) -> String {
    format!("cuBLASLt failed: {error:?}")
}

/// Returns the library's epilogue for an activation, given by its key in the op table, and a bias.
fn epilogue(activation: Option<&str>, has_bias: bool) -> Option<sys::cublasLtEpilogue_t> {
    use sys::cublasLtEpilogue_t as Epilogue;
    Some(match (activation, has_bias) {
        (None, false) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
        (None, true) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
        (Some("gelu-tanh"), false) => Epilogue::CUBLASLT_EPILOGUE_GELU,
        (Some("gelu-tanh"), true) => Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
        _ => return None,
    })
}

impl PlannedProduct {
    /// Plans a product.
    ///
    /// # Errors
    /// Returns an error if the library has no algorithm for the product.
    pub fn new(library: &std::sync::Arc<Library>, product: &Product) -> Result<PlannedProduct, String> {
        let sum = if product.operands == DType::F64 { DType::F64 } else { DType::F32 };
        // Products of 32-bit operands are exact in 32 bits; TF32 must be requested.
        let how = match sum {
            DType::F64 => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            _ if product.tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let [batch, rows, columns, depth] = product.extents;
        let matrices = [
            (product.rhs, depth, columns, product.operands),
            (product.lhs, rows, depth, product.operands),
            (product.out, rows, columns, product.result),
        ];
        // SAFETY: the values below outlive the calls and have the stated sizes.
        unsafe {
            let description = result::create_matmul_desc(how, element(sum)?).map_err(failed)?;
            let mut layouts = [std::ptr::null_mut(); 3];
            for (n, (matrix, rows, columns, dtype)) in matrices.into_iter().enumerate() {
                layouts[n] = layout(&matrix, [batch, rows, columns], dtype)?;
                // A row-major matrix is its transpose in column-major order.
                let which = match n {
                    0 => sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                    1 => sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB,
                    _ => continue,
                };
                let transposed = i32::from(matrix.strides[2] != 1);
                let at = (&raw const transposed).cast::<c_void>();
                result::set_matmul_desc_attribute(description, which, at, size_of::<i32>()).map_err(failed)?;
            }
            let preference = result::create_matmul_pref().map_err(failed)?;
            let most = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let bytes = LIBRARY_BYTES;
            let at = (&raw const bytes).cast::<c_void>();
            result::set_matmul_pref_attribute(preference, most, at, size_of::<usize>()).map_err(failed)?;
            use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
            // Splits of the depth are added in order, in the type of the sums and never in that of the result.
            let reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
            let at = (&raw const reduction).cast::<c_void>();
            let which = Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
            result::set_matmul_pref_attribute(preference, which, at, size_of::<u32>()).map_err(failed)?;
            for which in [
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
            ] {
                let alignment = 16_u32;
                let at = (&raw const alignment).cast::<c_void>();
                result::set_matmul_pref_attribute(preference, which, at, size_of::<u32>()).map_err(failed)?;
            }
            let finish = &product.finish;
            let epilogue = epilogue(finish.activation, finish.bias.is_some()).ok_or_else(|| {
                format!("cannot plan a product because cuBLASLt has no epilogue {:?}", finish.activation)
            })?;
            let at = (&raw const epilogue).cast::<c_void>();
            let which = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_EPILOGUE;
            result::set_matmul_desc_attribute(description, which, at, size_of_val(&epilogue)).map_err(failed)?;
            let residual = finish.residual.unwrap_or(product.out);
            let added = layout(&residual, [batch, rows, columns], product.result)?;
            let layouts = [layouts[0], layouts[1], added, layouts[2]];
            let [a, b, c, d] = layouts;
            let found = result::get_matmul_algo_heuristic(library.0, description, a, b, c, d, preference);
            let _ = result::destroy_matmul_pref(preference);
            let algorithm = found.map_err(failed)?.algo;
            Ok(PlannedProduct {
                library: library.clone(),
                product: product.clone(),
                description: Mutex::new(description),
                layouts,
                algorithm,
            })
        }
    }

    /// Puts the product into a stream.
    ///
    /// # Safety
    /// `args` must be addresses of buffers with the sizes that the product states.
    ///
    /// # Errors
    /// Returns an error if the library refuses the product.
    pub unsafe fn run(&self, launch: &Launch, args: &[u64], stream: driver::sys::CUstream) -> Result<(), BackendError> {
        let Product { operands, result, lhs, rhs, out, finish, .. } = &self.product;
        let at = |matrix: &MatrixLayout, dtype: &DType| {
            args[BEFORE_SLOTS + matrix.slot] + (matrix.offset * dtype.size()) as u64
        };
        let adds = f32::from(u8::from(finish.residual.is_some()));
        let (scales, wide) = ([1.0_f32, adds], [1.0_f64, f64::from(adds)]);
        let (one, beta) = match operands {
            DType::F64 => ((&raw const wide[0]).cast::<c_void>(), (&raw const wide[1]).cast::<c_void>()),
            _ => ((&raw const scales[0]).cast::<c_void>(), (&raw const scales[1]).cast::<c_void>()),
        };
        let [a, b, c, d] = self.layouts;
        let added = finish.residual.as_ref().unwrap_or(out);
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        // The library's memory is at the end of the workspace, after the product if that is in the workspace.
        let own = args[0] + (launch.workspace - LIBRARY_BYTES) as u64;
        // SAFETY: the caller guarantees the addresses.
        unsafe {
            if let Some((slot, offset)) = finish.bias {
                let bias = args[BEFORE_SLOTS + slot] + (offset * result.size()) as u64;
                let which = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
                result::set_matmul_desc_attribute(*description, which, (&raw const bias).cast(), size_of::<u64>())
                    .map_err(|e| BackendError::Device(failed(e)))?;
            }
            result::matmul(
                self.library.0,
                *description,
                one,
                beta,
                at(rhs, operands) as *const c_void,
                a,
                at(lhs, operands) as *const c_void,
                b,
                at(added, result) as *const c_void,
                c,
                at(out, result) as *mut c_void,
                d,
                &self.algorithm,
                own as *mut c_void,
                LIBRARY_BYTES,
                stream.cast(),
            )
        }
        .map_err(|e| BackendError::Device(failed(e)))
    }
}

/// Returns the library's description of a batch of matrices.
///
/// # Safety
/// cuBLASLt must be open.
unsafe fn layout(
    matrix: &MatrixLayout,
    [batch, rows, columns]: [usize; 3],
    dtype: DType,
) -> Result<sys::cublasLtMatrixLayout_t, String> {
    let [step, row, column] = matrix.strides;
    // The contiguous axis comes first, because the library's matrices are column-major.
    let (near, far, stride) = if column == 1 { (columns, rows, row) } else { (rows, columns, column) };
    let layout =
        result::create_matrix_layout(element(dtype)?, near as u64, far as u64, stride as i64).map_err(failed)?;
    let (count, step) = (batch as i32, step as i64);
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    // SAFETY: the values outlive the calls and have the stated sizes.
    unsafe {
        let at = (&raw const count).cast::<c_void>();
        let which = Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
        result::set_matrix_layout_attribute(layout, which, at, size_of::<i32>()).map_err(failed)?;
        let at = (&raw const step).cast::<c_void>();
        let which = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
        result::set_matrix_layout_attribute(layout, which, at, size_of::<i64>()).map_err(failed)?;
    }
    Ok(layout)
}

impl Drop for PlannedProduct {
    fn drop(&mut self) {
        // SAFETY: `new` made these descriptions, and nothing else destroys them.
        unsafe {
            self.layouts.iter().for_each(|&layout| _ = result::destroy_matrix_layout(layout));
            let description = self.description.get_mut().unwrap_or_else(PoisonError::into_inner);
            _ = result::destroy_matmul_desc(*description);
        }
    }
}
