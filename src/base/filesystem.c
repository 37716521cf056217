#include "base/filesystem.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/vfs.h>

#define PATH_BYTES 4096 /* with the NUL: the kernel takes no longer ones */

/* By statfs(2). FUSE is among them because nothing tells sshfs from a local one. */
static const struct {
    uint32_t magic;
    enum filesystem_kind kind;
    const char *name;
} filesystems[] = {
    {0x01021994, FILESYSTEM_IN_MEMORY, "tmpfs"},   {0x858458f6, FILESYSTEM_IN_MEMORY, "ramfs"},
    {0x00006969, FILESYSTEM_ON_NETWORK, "NFS"},    {0xff534d42, FILESYSTEM_ON_NETWORK, "CIFS"},
    {0xfe534d42, FILESYSTEM_ON_NETWORK, "SMB"},    {0x0000517b, FILESYSTEM_ON_NETWORK, "SMB"},
    {0x01021997, FILESYSTEM_ON_NETWORK, "9p"},     {0x00c36400, FILESYSTEM_ON_NETWORK, "Ceph"},
    {0x5346414f, FILESYSTEM_ON_NETWORK, "AFS"},    {0x73757245, FILESYSTEM_ON_NETWORK, "Coda"},
    {0x01161970, FILESYSTEM_ON_NETWORK, "GFS2"},   {0x7461636f, FILESYSTEM_ON_NETWORK, "OCFS2"},
    {0x0bd00bd0, FILESYSTEM_ON_NETWORK, "Lustre"}, {0x65735546, FILESYSTEM_ON_NETWORK, "FUSE"},
    {0x786f4256, FILESYSTEM_ON_NETWORK, "vboxsf"}, {0x47504653, FILESYSTEM_ON_NETWORK, "GPFS"},
};

/* Makes the path that of the directory above: "/x" is in "/", and "x" in ".". False: there is none. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');

    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return false;
    if (slash)
        slash[slash == path] = '\0';
    else
        memcpy(path, ".", 2);
    return true;
}

int filesystem_look(const char *path, enum filesystem_kind *ret_kind, const char **ret_name,
                    struct error_text *err)
{
    char at[PATH_BYTES];
    struct statfs fs;

    if (!path[0] || strlen(path) >= sizeof at)
        return error_set(err, HF_EREFUSED, "cannot tell the filesystem of '%.80s': no such path",
                         path);
    memcpy(at, path, strlen(path) + 1);
    while (statfs(at, &fs) < 0)
        if (errno != ENOENT || !go_up(at))
            return error_set_errno(err, errno == ENOMEM ? HF_ENOMEM : HF_EREFUSED, errno,
                                   "cannot tell the filesystem of %s", path);
    *ret_kind = FILESYSTEM_ON_DISK;
    *ret_name = "";
    for (size_t i = 0; i < sizeof filesystems / sizeof *filesystems; i++)
        if ((uint32_t)fs.f_type == filesystems[i].magic) {
            *ret_kind = filesystems[i].kind;
            *ret_name = filesystems[i].name;
        }
    return HF_OK;
}
