// Several threads that compute one thing together, in steps that all finish before any goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <torch/csrc/stable/c/shim.h>

class Team {
 public:
  // The next of some items that nobody has taken. Each member asks until there are none, and then calls `sync`.
  int64_t next(int64_t items) {
    const int64_t found = taken.fetch_add(1, std::memory_order_relaxed);
    return found < items ? found : items;
  }

  // Waits until all `members` have called it as often.
  void sync() {
    if (members == 1) return taken.store(0, std::memory_order_relaxed);
    const int64_t turn = turns.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      arrived.store(0, std::memory_order_relaxed);
      taken.store(0, std::memory_order_relaxed);
      turns.store(turn + 1, std::memory_order_release);
      return;
    }
    wait([&] { return turns.load(std::memory_order_acquire) != turn; });
  }

  // Waiting is short unless a processor is taken away meanwhile.
  template <class Ready>
  static void wait(Ready ready) {
    for (int64_t tries = 0; !ready(); tries++) {
      if (tries > 4096) std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
      else __builtin_ia32_pause();
#endif
    }
  }

  int64_t members = 1;

 private:
  alignas(64) std::atomic<int64_t> arrived{0};
  alignas(64) std::atomic<int64_t> turns{0};
  alignas(64) std::atomic<int64_t> taken{0};
};

// One thread of a team.
struct Member {
  Team& team;
  int64_t number;

  void sync() { team.sync(); }
  int64_t from(int64_t items) const { return items * number / team.members; }
  int64_t to(int64_t items) const { return items * (number + 1) / team.members; }
};

// Calls work(member) in each of at most `threads` threads of torch's at the same time. False: torch failed.
template <class Work>
bool together(int64_t threads, Work work) {
  struct Shared {
    Work& work;
    int64_t threads;
    Team team;
    alignas(64) std::atomic<int64_t> each{0};  // of torch's ranges: one unless there are fewer threads than asked for
  } shared{work, threads};
  const auto run = [](int64_t from, int64_t to, void* pointer) {
    Shared& all = *(Shared*)pointer;
    if (from == 0) {
      all.team.members = (all.threads + to - 1) / to;
      all.each.store(to, std::memory_order_release);
    }
    Team::wait([&] { return all.each.load(std::memory_order_acquire) > 0; });
    Member member{all.team, from / all.each.load(std::memory_order_relaxed)};
    all.work(member);
  };
  return threads < 1 || torch_parallel_for(0, threads, 1, run, &shared) == 0;
}
