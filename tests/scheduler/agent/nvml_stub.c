/* A libnvidia-ml.so.1 without a device: as much of NVML's interface as the agent needs.
 *
 * NVML_STUB_DEVICES lists devices, separated by spaces: "GPU-a" is a device without MIG mode,
 * "GPU-b/MIG-1,,MIG-2" one in MIG mode with three slots, of which the second is empty, and "!4" one
 * for which nvmlDeviceGetHandleByIndex_v2 returns the error 4.
 * NVML_STUB_FAILS is "FUNCTION=ERROR": that function returns that error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };
enum { MOST = 8, UUID_BYTES = 96 };

struct device {
    char uuid[UUID_BYTES];
    int error; /* of the request for its handle */
    unsigned int is_mig, slots;
    struct device *mig; /* by slot; an empty slot has an empty UUID */
};

static struct device devices[MOST], mig_devices[MOST][MOST];
static unsigned int count;
static int initialized;

static int failure(const char *function) {
    const char *fails = getenv("NVML_STUB_FAILS");
    size_t length = strlen(function);
    if (fails && !strncmp(fails, function, length) && fails[length] == '=')
        return atoi(fails + length + 1);
    return initialized ? SUCCESS : UNINITIALIZED;
}

#define FAIL_IF_TOLD_TO \
    do { int error = failure(__func__); if (error) return error; } while (0)

static void parse(struct device *device, struct device *mig, char *text) {
    memset(device, 0, sizeof *device);
    if (*text == '!') {
        device->error = atoi(text + 1);
        return;
    }
    char *slots = strchr(text, '/');
    if (slots)
        *slots++ = '\0';
    snprintf(device->uuid, UUID_BYTES, "%s", text);
    device->is_mig = slots != NULL;
    device->mig = mig;
    for (char *slot; slots && device->slots < MOST && (slot = strsep(&slots, ",")) != NULL;)
        snprintf(mig[device->slots++].uuid, UUID_BYTES, "%s", slot);
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    initialized = 1;
    FAIL_IF_TOLD_TO;
    const char *wanted = getenv("NVML_STUB_DEVICES");
    char *text = strdup(wanted ? wanted : ""), *rest = text;
    count = 0;
    memset(mig_devices, 0, sizeof mig_devices);
    for (char *one; count < MOST && (one = strsep(&rest, " ")) != NULL;)
        if (*one) {
            parse(&devices[count], mig_devices[count], one);
            count++;
        }
    free(text);
    return SUCCESS;
}

int nvmlShutdown(void) {
    FAIL_IF_TOLD_TO;
    initialized = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int error) {
    static char text[32];
    snprintf(text, sizeof text, "error %d of the stub", error);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned int *found) {
    FAIL_IF_TOLD_TO;
    *found = count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **found) {
    FAIL_IF_TOLD_TO;
    if (index >= count)
        return INVALID_ARGUMENT;
    *found = &devices[index];
    return devices[index].error;
}

int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned int length) {
    FAIL_IF_TOLD_TO;
    snprintf(uuid, length, "%s", device->uuid);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned int *now, unsigned int *pending) {
    FAIL_IF_TOLD_TO;
    *now = *pending = device->is_mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned int *found) {
    FAIL_IF_TOLD_TO;
    *found = device->slots;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned int index,
                                        struct device **found) {
    FAIL_IF_TOLD_TO;
    if (index >= device->slots)
        return INVALID_ARGUMENT;
    *found = &device->mig[index];
    return *device->mig[index].uuid ? SUCCESS : NOT_FOUND;
}
