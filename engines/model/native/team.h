// A team of threads that compute one thing together, in steps separated by barriers.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

class Team {
 public:
  // Dynamic scheduling: the next item that no thread has taken, or `items` if there is none. Each thread calls it until
  // then, and waits at the barrier afterwards.
  int64_t next(int64_t items) {
    const int64_t item = taken.fetch_add(1, std::memory_order_relaxed);
    return item < items ? item : items;
  }

  void barrier() {
    if (threads == 1) return taken.store(0, std::memory_order_relaxed);
    const int64_t current = phase.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
      arrived.store(0, std::memory_order_relaxed);
      taken.store(0, std::memory_order_relaxed);
      phase.store(current + 1, std::memory_order_release);
      return;
    }
    spin([&] { return phase.load(std::memory_order_acquire) != current; });
  }

  // Waits are short unless another program takes a core away meanwhile; then the thread yields.
  template <class Ready>
  static void spin(Ready ready) {
    for (int64_t tries = 0; !ready(); tries++) {
      if (tries > 4096) std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
      else __builtin_ia32_pause();
#endif
    }
  }

  std::atomic<int64_t> threads{1};

 private:
  alignas(64) std::atomic<int64_t> arrived{0};
  alignas(64) std::atomic<int64_t> phase{0};
  alignas(64) std::atomic<int64_t> taken{0};
};

// One thread of a team; begin and end give its share of some items (static scheduling).
struct Thread {
  Team& team;
  int64_t number;

  void barrier() { team.barrier(); }
  int64_t begin(int64_t items) const { return items * number / team.threads; }
  int64_t end(int64_t items) const { return items * (number + 1) / team.threads; }
};

// The OpenMP library that torch uses, by functions that both GNU's and LLVM's have. null: there is none.
struct OpenMP {
  void (*parallel)(void (*run)(void*), void* data, unsigned threads, unsigned flags);  // GOMP_parallel
  int (*num_threads)();                                                                // omp_get_num_threads
};
inline OpenMP openmp{};

// Runs work(thread) in a team of at most so many threads.
template <class Work>
void parallel(int64_t threads, Work work) {
  struct Region {
    Work& work;
    Team team;
    std::atomic<int64_t> joined{0};
  } region{work};
  if (threads < 1) return;
  if (threads == 1 || !openmp.parallel) {
    Thread only{region.team, 0};
    return work(only);
  }
  const auto run = [](void* data) {
    Region& region = *(Region*)data;
    Thread thread{region.team, region.joined.fetch_add(1)};
    region.team.threads.store(openmp.num_threads(), std::memory_order_relaxed);  // every thread stores the same number
    region.work(thread);
  };
  openmp.parallel(run, &region, threads, 0);
}
