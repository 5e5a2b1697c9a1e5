// Compiles only where the random-number headers are: FlashInfer's sampling kernels include both.
#include <curand.h>
#include <curand_kernel.h>

__global__ void draw(float *out, unsigned long long seed) {
  curandStatePhilox4_32_10_t state;
  curand_init(seed, threadIdx.x, 0, &state);
  out[threadIdx.x] = curand_uniform(&state);
}
