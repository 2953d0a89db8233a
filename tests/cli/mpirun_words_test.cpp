// What of mpirun's standard error a user sees.
#include "cli/mpirun_words.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

const std::string kRule(74, '-');

std::string banner() {
  return kRule +
         "\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be "
         "terminated. The first process to do so was:\n\n  Process name: [[1,1],1]\n  Exit code:    2\n" +
         kRule + "\n";
}

std::string seen_in(const std::string& text, std::size_t piece) {
  MpirunWords words;
  std::string seen;
  for (std::size_t begin = 0; begin < text.size(); begin += piece) seen += words.add(text.substr(begin, piece));
  return seen + words.end();
}

TEST(MpirunWords, ShowThoseOfRanksWithoutTheBannersHoweverTheyAreCut) {
  const std::string text = "heddle: loading\n" + kRule +
                           "\nPrimary job  terminated normally, but 1 process returned\n"
                           "heddle: error: rank 1: no such folder\na non-zero exit code.\n" +
                           kRule + "\n" + banner() + "[host:7] 1 more process has sent help message help-x\n";
  for (const std::size_t piece : {1, 7, 50, 100000})
    EXPECT_EQ(seen_in(text, piece), "heddle: loading\nheddle: error: rank 1: no such folder\n");
}

TEST(MpirunWords, NoticeThatARankHasFailedAndDoNotShowIt) {
  MpirunWords words;
  EXPECT_EQ(words.add("heddle: error: rank 1: no such folder\nheddle launch: a rank"),
            "heddle: error: rank 1: no such folder\n");
  EXPECT_FALSE(words.rank_failed());
  EXPECT_EQ(words.add(" has failed\nheddle: loading\n"), "heddle: loading\n");
  EXPECT_TRUE(words.rank_failed());
  EXPECT_EQ(words.end(), "");
}

TEST(MpirunWords, LeaveOutTheBannerOfOpenMpi5) {
  EXPECT_EQ(
      seen_in("heddle: error: rank 1: no such folder\n" + kRule +
                  "\nprterun detected that one or more processes exited with non-zero status,\nthus causing the job "
                  "to be terminated. The first process to do so was:\n\n   Process name: [prterun-vm-4918@1,1]\n   "
                  "Exit code:    2\n" +
                  kRule + "\n",
              7),
      "heddle: error: rank 1: no such folder\n");
}

TEST(MpirunWords, LeaveOutTheBannerOfARankThatExitsWithoutFinalize) {
  EXPECT_EQ(
      seen_in("heddle: warning: mpi: rank 1: rank 0 waited\nerror: rank 0 waited\n" + kRule +
                  "\nmpirun has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly. There are "
                  "three reasons this could occur:\n\n1. this process did not call \"init\"\n" +
                  kRule + "\n",
              7),
      "heddle: warning: mpi: rank 1: rank 0 waited\nerror: rank 0 waited\n");
}

TEST(MpirunWords, SayAnErrorOfAllRanksOnce) {
  EXPECT_EQ(seen_in("heddle: error: rank 0: no --seed\nheddle: error: rank 1: no --seed\nheddle: error: rank 1 has x\n",
                    1000),
            "heddle: error: rank 0: no --seed\nheddle: error: rank 1 has x\n");
}

TEST(MpirunWords, AreMpirunsWhereNoRankSpeaks) {
  EXPECT_EQ(seen_in("usage\n" + banner(), 1000), "usage\n" + banner());
}

TEST(MpirunWords, TellOfNoLostRankOnceAllAreAskedToEnd) {
  MpirunWords words;
  words.expect_ends();
  EXPECT_EQ(words.add("heddle: error: rank 0 (process 5) has ended\nheddle: interrupted; 2 of 3\n"),
            "heddle: interrupted; 2 of 3\n");
  EXPECT_TRUE(words.said_interrupted());
}

TEST(MpirunWords, BeginWithTheRanksWhereTextsComeBetweenAsTheyEnd) {
  MpirunWords words;
  words.expect_ends();
  EXPECT_EQ(words.add(" uponheddle: interrupted; 2 of 3\n"), "heddle: interrupted; 2 of 3\n");
  EXPECT_TRUE(words.said_interrupted());
}

TEST(MpirunWords, AreNotShownWhenMpirunKillsTheRanks) {
  MpirunWords words;
  words.expect_kills();
  EXPECT_EQ(words.add("mpirun: abort is in progress\nheddle: interrupted; 2 of 3\n[vm:1] Signal"),
            "heddle: interrupted; 2 of 3\n");
  EXPECT_EQ(words.flush(), "");
}

TEST(MpirunWords, ShowOtherBannersAsTheyAre) {
  const std::string slots = kRule + "\nThere are not enough slots available in the system\n" + kRule + "\n";
  EXPECT_EQ(seen_in("heddle: a\n" + slots, 5), "heddle: a\n" + slots);
}

TEST(MpirunWords, ShowALineWithoutAnEndWhenNothingFollows) {
  MpirunWords words;
  EXPECT_EQ(words.add("loading 10 %\r"), "");
  EXPECT_EQ(words.flush(), "loading 10 %\r");
  EXPECT_EQ(words.add("\n"), "\n");
}

}  // namespace
}  // namespace heddle
