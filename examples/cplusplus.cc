// The headers are clean C++, and their types fit a guard object of a dozen lines.
#include <holdfast/cluster.h>
#include <holdfast/holdfast.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace
{

class Lock
{
public:
    Lock(hf_store *store, const std::string &name)
    {
        hf_options options = HF_OPTIONS_INIT;

        if (hf_acquire(store, name.c_str(), &options, &lock_) != HF_OK)
            throw std::runtime_error(hf_error());
    }
    ~Lock()
    {
        hf_release(lock_);
    }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;
    uint64_t token() const
    {
        return hf_lock_token(lock_);
    }

private:
    hf_lock *lock_ = nullptr;
};

} // namespace

int main(int argc, char **argv)
{
    hf_list_options list = HF_LIST_OPTIONS_INIT;
    hf_store *store;

    (void)list;
    if (hf_open(argc > 1 ? argv[1] : nullptr, &store) != HF_OK) {
        std::fprintf(stderr, "%s\n", hf_error());
        return 1;
    }
    {
        Lock lock(store, "example/cplusplus");
        std::printf("holding, token %llu\n", static_cast<unsigned long long>(lock.token()));
    }
    hf_close(store);
    return 0;
}
