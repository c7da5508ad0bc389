/*
 * Stands in for libcuda at link time. Each driver function named in
 * cuda_api.inc is defined here and, at its first call, looked up in
 * libcuda.so.1. So a binary that contains the CUDA backend starts on machines
 * without a driver, where every call returns CUDA_ERROR_NO_DEVICE.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "cuda.h"

static void *driver;
static CUresult driver_state = CUDA_ERROR_NO_DEVICE;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_driver(void)
{
	CUresult (*init)(unsigned int);

	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver)
		return;
	init = (CUresult(*)(unsigned int))dlsym(driver, "cuInit");
	driver_state = init ? init(0) : CUDA_ERROR_NOT_SUPPORTED;
}

/*
 * Puts the driver's initialisation off until the first call that needs it:
 * gorgonia.org/cu calls cuInit when its package is initialised, in every
 * process of the program, and ends the process if that fails.
 */
CUresult cuInit(unsigned int flags)
{
	return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The driver's function, or NULL with *why set. */
static void *find(const char *symbol, CUresult *why)
{
	void *f;

	pthread_once(&opened, open_driver);
	*why = driver_state;
	if (driver_state != CUDA_SUCCESS)
		return NULL;
	f = dlsym(driver, symbol);
	if (!f)
		*why = CUDA_ERROR_NOT_SUPPORTED;
	return f;
}

#define OCTET_CUDA_FUNCTION(name, symbol, params, args)                          \
	CUresult name params                                                     \
	{                                                                        \
		static CUresult(*found) params;                                  \
		CUresult(*call) params = __atomic_load_n(&found, __ATOMIC_RELAXED); \
		CUresult why;                                                    \
		if (!call) {                                                     \
			call = (CUresult(*) params)find(symbol, &why);           \
			if (!call)                                               \
				return why;                                      \
			__atomic_store_n(&found, call, __ATOMIC_RELAXED);        \
		}                                                                \
		return call args;                                                \
	}
#include "cuda_api.inc"
