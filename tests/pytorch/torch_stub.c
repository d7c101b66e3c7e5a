/* Empty: libraries of CUDA that LibTorch's wheel names but that a machine without a GPU does not have. Python's torch then
   loads, as long as nothing calls them. */
