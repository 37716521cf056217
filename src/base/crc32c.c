#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* with its lowest bit first */
#define SLICES 8               /* bytes that are looked up at once */

static uint32_t table[SLICES][256];

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;

        for (int bit = 0; bit < 8; bit++)
            sum = (sum >> 1) ^ (sum & 1 ? POLYNOMIAL : 0);
        table[0][byte] = sum;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t sum = table[slice - 1][byte];

            table[slice][byte] = (sum >> 8) ^ table[0][sum & 0xff];
        }
}

static uint32_t read_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t with_table(uint32_t sum, const unsigned char *at, size_t size)
{
    for (; size >= SLICES; size -= SLICES, at += SLICES) {
        uint32_t low = sum ^ read_u32(at), high = read_u32(at + 4);

        sum = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
              table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; size > 0; size--, at++)
        sum = (sum >> 8) ^ table[0][(sum ^ *at) & 0xff];
    return sum;
}

/* ---- processors that can do it themselves ------------------------------------------------------ */

#if defined(__aarch64__)
/* Not by arm_acle.h: what clang has there is only for those who say so when they compile everything. */
#define INSTRUCTIONS
#define SUM_8(sum, word) \
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word))
#define SUM_1(sum, byte) \
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(sum) : "r"((uint32_t)(byte)))
#elif defined(__x86_64__)
#define INSTRUCTIONS __attribute__((target("sse4.2")))
#define SUM_8(sum, word) sum = (uint32_t)_mm_crc32_u64(sum, word)
#define SUM_1(sum, byte) sum = _mm_crc32_u8(sum, byte)
#endif

#ifdef INSTRUCTIONS
INSTRUCTIONS static uint32_t with_instructions(uint32_t sum, const unsigned char *at, size_t size)
{
    uint64_t word;

    for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        SUM_8(sum, word);
    }
    for (; size > 0; size--, at++)
        SUM_1(sum, *at);
    return sum;
}
#endif

static uint32_t (*best)(uint32_t sum, const unsigned char *at, size_t size);

static void choose(void)
{
    make_table();
    best = with_table;
#if defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_CRC32)
        best = with_instructions;
#elif defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        best = with_instructions;
#endif
}

uint32_t crc32c(uint32_t sum, const void *bytes, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose);
    return ~best(~sum, bytes, size);
}

uint32_t crc32c_with_table(uint32_t sum, const void *bytes, size_t size)
{
    crc32c(0, NULL, 0);
    return ~with_table(~sum, bytes, size);
}
