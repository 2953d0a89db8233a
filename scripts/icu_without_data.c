/* ICU's data library without data: 31 MB less to carry to another machine. Classes of characters, NFC and NFD are compiled
 * into ICU itself; what is not there (locales, NFKC, converters, collation) fails when it is asked for. Only gpu_bundle.sh
 * builds this. The layout is that of ICU's "common data" header: unicode/udata.h, UDataInfo. */
#include <unicode/udata.h>
#include <unicode/uversion.h>
#include <unicode/utypes.h>

#define JOINED(a, b, c) a##b##c
#define EXPANDED(version) JOINED(icudt, version, _dat)
#define ENTRY_POINT(version) EXPANDED(version)

typedef struct {
  uint16_t header_size;
  uint8_t magic1, magic2;
  UDataInfo info;
  char padding[8];
  uint32_t count, reserved;
  int32_t names_and_data[4];
} IcuData;

__attribute__((aligned(16))) const IcuData ENTRY_POINT(U_ICU_VERSION_MAJOR_NUM) = {
    .header_size = 32,
    .magic1 = 0xda,
    .magic2 = 0x27,
    .info = {.size = sizeof(UDataInfo),
             .isBigEndian = U_IS_BIG_ENDIAN,
             .charsetFamily = U_CHARSET_FAMILY,
             .sizeofUChar = sizeof(UChar),
             .dataFormat = {'T', 'o', 'C', 'P'},
             .formatVersion = {1, 0, 0, 0}}};
