/*
 * Stands for miniaudio where Ollama is built for tests (make ollama): the module's
 * zip leaves the directories out that are named vendor, and this one is in no Debian
 * package. It decodes no sound; whoever hands one in is told that it can't be read.
 */
#ifndef MINIAUDIO_STAND_IN
#define MINIAUDIO_STAND_IN

#include <stddef.h>

typedef unsigned long long ma_uint64;
typedef enum { MA_SUCCESS = 0, MA_NOT_IMPLEMENTED = -29 } ma_result;
typedef enum { ma_format_f32 = 5 } ma_format;
typedef struct { int unused; } ma_decoder_config;
typedef struct { int unused; } ma_decoder;

static inline ma_decoder_config ma_decoder_config_init(ma_format, unsigned, unsigned) { return {}; }
static inline ma_result ma_decoder_init_memory(const void *, size_t, const ma_decoder_config *, ma_decoder *) { return MA_NOT_IMPLEMENTED; }
static inline ma_result ma_decoder_get_length_in_pcm_frames(ma_decoder *, ma_uint64 *) { return MA_NOT_IMPLEMENTED; }
static inline ma_result ma_decoder_read_pcm_frames(ma_decoder *, void *, ma_uint64, ma_uint64 *) { return MA_NOT_IMPLEMENTED; }
static inline ma_result ma_decoder_uninit(ma_decoder *) { return MA_SUCCESS; }

#endif
