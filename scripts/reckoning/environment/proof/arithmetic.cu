// Proof that nvcc, its headers and the driver work together: every GPU doubles some numbers and the host checks them.
// Prints one JSON line; the exit code is the number of GPUs that failed (or 99 when the runtime does not start).
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

__global__ void twice(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __half2float(__float2half(in[i])) * 2.0f;
}

static const char *run(int device, int n, float *host) {
  float *in = nullptr, *out = nullptr;
  cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) error = cudaMalloc(&in, n * sizeof(float));
  if (error == cudaSuccess) error = cudaMalloc(&out, n * sizeof(float));
  if (error == cudaSuccess) error = cudaMemset(out, 0xff, n * sizeof(float));
  for (int i = 0; i < n; ++i) host[i] = (float)(i % 1024);
  if (error == cudaSuccess) error = cudaMemcpy(in, host, n * sizeof(float), cudaMemcpyHostToDevice);
  if (error == cudaSuccess) twice<<<(n + 255) / 256, 256>>>(in, out, n);
  if (error == cudaSuccess) error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaMemcpy(host, out, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(in);
  cudaFree(out);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (int i = 0; i < n; ++i)
    if (host[i] != 2.0f * (float)(i % 1024)) return "wrong result";
  return nullptr;
}

int main() {
  static float host[1 << 16];
  int count = 0, driver = 0, runtime = 0, failed = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  printf("{\"driver\": %d, \"runtime\": %d, \"error\": ", driver, runtime);
  if (error == cudaSuccess) printf("null, \"devices\": [");
  else printf("\"%s\", \"devices\": [", cudaGetErrorString(error));
  for (int device = 0; device < count; ++device) {
    const char *problem = run(device, 1 << 16, host);
    failed += problem != nullptr;
    printf("%s{\"index\": %d, \"error\": %s%s%s}", device ? ", " : "", device, problem ? "\"" : "", problem ? problem : "null",
           problem ? "\"" : "");
  }
  printf("]}\n");
  return error == cudaSuccess ? failed : 99;
}
