// The kernel's small files and the lists that variables hold.
#include "preflight/sources.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "preflight/finding.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

TEST(Sources, ReadFilesOrNothing) {
    const Tree tree;
    EXPECT_EQ(try_read_text(tree.root() / "absent"), std::nullopt);
    EXPECT_EQ(try_read_text(tree.root()), std::nullopt);  // a folder
    tree.put("file", "one\ntwo\n");
    EXPECT_EQ(try_read_text(tree.root() / "file"), "one\ntwo\n");
    EXPECT_EQ(try_read_text(tree.root() / "file", 4), "one\n");
    EXPECT_EQ(read_line(tree.root() / "file"), "one");
    tree.put("file", "  up\x1b[31m\t \nmore");
    EXPECT_EQ(read_line(tree.root() / "file"), "up?[31m");
    EXPECT_EQ(read_line(tree.root() / "absent"), "");
    ASSERT_EQ(::mkfifo((tree.root() / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(read_line(tree.root() / "pipe"), "");  // and does not wait for a writer
}

TEST(Sources, ListFoldersInNumericOrder) {
    const Tree tree;
    for (const char* name : {"mlx5_10", "mlx5_2", "mlx5_1", "eth0", "lo"}) tree.put_folder(name);
    EXPECT_EQ(names_in(tree.root()), (std::vector<std::string>{"eth0", "lo", "mlx5_1", "mlx5_2", "mlx5_10"}));
    EXPECT_TRUE(names_in(tree.root() / "absent").empty());
}

TEST(Sources, ReadNumbersAtTheStart) {
    EXPECT_EQ(leading_number("400 Gb/sec (4X NDR)"), 400);
    EXPECT_EQ(leading_number("2.5 GT/s PCIe"), 2.5);
    EXPECT_EQ(leading_number("Unknown"), std::nullopt);
    EXPECT_EQ(leading_number("inf"), std::nullopt);
    EXPECT_EQ(leading_number("nan"), std::nullopt);
    EXPECT_EQ(leading_number("1e999"), std::nullopt);
    EXPECT_EQ(leading_integer(" -1\n"), -1);
    EXPECT_EQ(leading_integer("99999999999999999999"), std::nullopt);
    EXPECT_EQ(leading_integer(""), std::nullopt);
}

TEST(Sources, SplitAndTrim) {
    using Parts = std::vector<std::string_view>;
    EXPECT_EQ(split("a, b ,,c", ','), (Parts{"a", "b", "", "c"}));
    EXPECT_EQ(split("a,", ','), (Parts{"a", ""}));
    EXPECT_EQ(split("", ','), Parts{});
    EXPECT_EQ(split(" \n", ','), Parts{});
    EXPECT_EQ(trimmed(" \t "), "");
}

TEST(Sources, ReadCpuLists) {
    using Cpus = std::vector<int>;
    EXPECT_EQ(parse_cpu_list("0-3,8"), (Cpus{0, 1, 2, 3, 8}));
    EXPECT_EQ(parse_cpu_list("5,0-1,1"), (Cpus{0, 1, 5}));
    for (const char* no_list : {"", "\n", "x", "3-1", "-4", "0-99999999999", "1-"}) {
        EXPECT_EQ(parse_cpu_list(no_list), Cpus{}) << no_list;
    }
}

TEST(NameLists, FollowTheSyntaxOfNccl) {
    const auto chooses = [](const char* text, const char* name, int port = -1) {
        return NameList(text, NameList::Syntax::Nccl).chooses(name, port);
    };
    EXPECT_TRUE(chooses("eth", "eth0"));
    EXPECT_FALSE(chooses("eth", "ib0"));
    EXPECT_FALSE(chooses("=eth", "eth0"));
    EXPECT_TRUE(chooses("=eth0,ib0", "ib0"));
    EXPECT_FALSE(chooses("^docker,lo", "docker0"));
    EXPECT_TRUE(chooses("^docker,lo", "eth0"));
    EXPECT_TRUE(chooses("^=lo", "lo1"));
    EXPECT_TRUE(chooses("mlx5_0:1", "mlx5_0", 1));
    EXPECT_FALSE(chooses("mlx5_0:1", "mlx5_0", 2));
    EXPECT_TRUE(chooses("mlx5_0", "mlx5_0", 2));
    EXPECT_TRUE(chooses("", "anything"));
    EXPECT_TRUE(chooses(" mlx5_0 , mlx5_1 ", "mlx5_1"));
}

TEST(NameLists, OfMpiRequireWholeNames) {
    const NameList list("ib0,10.0.0.0/8", NameList::Syntax::WholeNames);
    EXPECT_EQ(list.entries().size(), 1u);
    EXPECT_TRUE(list.chooses("ib0"));
    EXPECT_FALSE(list.chooses("ib01"));
}

TEST(Commands, RunWithoutInputAndReturnTheirExitCode) {
    EXPECT_EQ(run_command({"/no/such/program"}, 5).end, CommandResult::End::NotFound);
    const CommandResult result = run_command({"sh", "-c", "cat; echo out; echo error >&2; exit 3"}, 5);
    EXPECT_EQ(result.end, CommandResult::End::Exited);
    EXPECT_EQ(result.status, 3);
    EXPECT_EQ(result.output, "out\nerror\n");
    EXPECT_LE(run_command({"head", "-c", "5000000", "/dev/zero"}, 20).output.size(), 1u << 20);
    // It closes its output and stays.
    EXPECT_EQ(run_command({"sh", "-c", "exec >&- 2>&-; sleep 600"}, 0.3).end, CommandResult::End::Hung);
}

TEST(Calls, HaveOneDeadlineAndNoneFollowsOneThatDidNotEnd) {
    using End = CommandResult::End;
    Calls calls(30);
    EXPECT_EQ(calls.run({"true"}, 20).end, End::Exited);
    EXPECT_EQ(calls.run({"sleep", "600"}, 0.2).end, End::Hung);
    EXPECT_TRUE(calls.hung());
    EXPECT_FALSE(calls.out_of_time());
    EXPECT_EQ(calls.run({"true"}, 20).end, End::Hung) << "left out";
    Calls brief(0.2);
    EXPECT_EQ(brief.run({"sleep", "600"}, 20).end, End::Hung);
    EXPECT_FALSE(brief.hung()) << "it had too little time";
    EXPECT_TRUE(brief.out_of_time());
}

}  // namespace
}  // namespace argosy::preflight
