// Errors of GPUs and NVSwitches in the kernel's log: how they are read, and what they mean.
#include "preflight/cluster.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

TEST(KernelLog, IsReadForErrorsOfGpus) {
    const Tree tree;
    EXPECT_FALSE(read_xids(tree.sources()));
    tree.put("proc/uptime", "7300.5 100.0\n");
    tree.put("var/log/syslog",
             "Oct 6 kernel: NVRM: Xid (PCI:0000:01:00): 48, pid=1, An uncorrectable error\n");
    std::vector<Xid> xids = read_xids(tree.sources()).value();
    ASSERT_EQ(xids.size(), 1u);
    EXPECT_EQ(xids[0].code, 48);
    EXPECT_EQ(xids[0].age_hours, std::nullopt);
    tree.put("dev/kmsg",
             "6,339,5140900,-;NET: Registered protocol family 10\n"
             "4,900,100500000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n"
             "4,901,3700500000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
             "4,902,3700500000,-;NVRM: Xid (PCI:0000:86:00): 31, Ch 0000000a\n");
    xids = read_xids(tree.sources()).value();
    ASSERT_EQ(xids.size(), 2u);
    EXPECT_EQ(xids[0].bus_id, "0000:3b:00");
    EXPECT_EQ(xids[0].code, 79);
    EXPECT_NEAR(xids[0].age_hours.value(), 1, 1e-9);  // the last one
    EXPECT_EQ(xids[1].code, 31);
}

TEST(KernelLog, IsReadForFatalErrorsOfSwitches) {
    const std::vector<Xid> xids = xids_in(
        "4,900,100500000,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
        "4,901,100500100,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48 "
        "Sub-engine instance 00\n"
        "4,902,100500200,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Data {0x10000000, 0x10000000}\n"
        "4,903,100500300,-;nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Non-fatal, Link 60 Minion Link "
        "DLREQ interrupt\n",
        3700.5);
    ASSERT_EQ(xids.size(), 1u);
    EXPECT_TRUE(xids[0].of_switch);
    EXPECT_EQ(xids[0].bus_id, "0000:06:00.0");
    EXPECT_EQ(xids[0].code, 20034);
    EXPECT_NEAR(xids[0].age_hours.value(), 1, 1e-9);
}

/// A link that recovers hides no fatal error before it; a reset ends what asked for it.
TEST(KernelLog, KeepsFatalErrorsApartAndEndsThoseThatAreOver) {
    const std::string fatal = "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Fatal XC0 i0 Link 72 (0x4)\n",
                      nonfatal = "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 7 (0x4)\n",
                      reset =
                          "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x0 (None) to "
                          "0x1 (GPU Reset Required)\n",
                      none =
                          "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
                          "Required) to 0x0 (None)\n";
    NodeFacts node;
    node.add_xids(xids_in(fatal + nonfatal + reset + none, {}));
    node.add_xids(xids_in(nonfatal, {}));
    ASSERT_EQ(node.xids.size(), 2u);
    EXPECT_FALSE(node.xids[0].nonfatal);
    EXPECT_TRUE(node.xids[1].nonfatal);
    EXPECT_EQ(xids_in(none + reset, {}).size(), 1u);
}

TEST(GpuErrorsLogged, StayWhereALaterLookFindsOthers) {
    NodeFacts node{.xids = {{"0000:3b:00", 79, 0.5}, {"0000:3b:00", 31, {}}, {"0000:3b:00", 48, 30}}};
    node.add_xids(
        {{"0000:3b:00", 48, 0.01}, {"0000:86:00", 79, 0.01}, {"0000:3b:00", 31, 2}, {"0000:3b:00", 79, {}}});
    std::vector<std::tuple<std::string, int, std::optional<double>>> xids;
    for (const Xid& xid : node.xids) xids.emplace_back(xid.bus_id, xid.code, xid.age_hours);
    EXPECT_EQ(xids, (decltype(xids){{"0000:3b:00", 79, 0.5},
                                    {"0000:3b:00", 31, 2},
                                    {"0000:3b:00", 48, 0.01},
                                    {"0000:86:00", 79, 0.01}}));
}

TEST(GpuErrorsLogged, CountByKindAndAge) {
    const auto severity = [](int code, std::optional<double> age_hours) {
        Cluster cluster = good_cluster();
        cluster.nodes[0].xids = {{.bus_id = "0000:3b:00", .code = code, .age_hours = age_hours}};
        return worst_severity(diagnose(cluster));
    };
    EXPECT_EQ(severity(79, 1), Severity::Fail);
    EXPECT_EQ(severity(79, 100), Severity::Warn);
    EXPECT_EQ(severity(79, std::nullopt), Severity::Warn);
    EXPECT_EQ(severity(63, 1), Severity::Warn);
    EXPECT_EQ(severity(13, 1), Severity::Pass);  // a program's
    EXPECT_EQ(severity(31, 1), Severity::Pass);
}

/// Diagnoses a node whose kernel has logged this a moment ago. "" is the finding's text without a finding.
Finding finding_on(const std::string& error) {
    Cluster cluster = good_cluster();
    cluster.nodes[1].xids = xids_in("4,900,1000000,-;NVRM: Xid (PCI:0018:01:00): " + error, 60);
    cluster.nodes[1] = unpack_node(pack(cluster.nodes[1]));
    const std::vector<Finding> findings = diagnose(cluster);
    return findings.empty() ? Finding{.severity = Severity::Pass} : findings[0];
}

TEST(GpuErrorsLogged, OfHardwareFailWithEachCode) {
    for (const int code : {48, 62, 64, 74, 79, 95, 119, 120, 140, 143}) {
        EXPECT_EQ(finding_on(std::to_string(code) + ", pid=1, name=x, Nonfatal or not").bad_nodes,
                  Names{"n1"})
            << code;
    }
    for (int code = 144; code <= 150; ++code) {
        const std::string number = std::to_string(code);
        EXPECT_EQ(finding_on(number + ", NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x004505c6)").bad_nodes,
                  Names{"n1"})
            << code;
        const Finding finding = finding_on(number + ", RLW_RXPIPE Nonfatal XC0 i0 Link 72 (0x00000004)");
        EXPECT_EQ(finding.severity, Severity::Warn) << code;
        EXPECT_EQ(finding.bad_nodes, Names{}) << code;
        expect_says(finding, {"nonfatal XID " + number + " of GPU 0018:01:00, within the last day"});
    }
}

TEST(GpuErrorsLogged, OfARecoveryActionFailUnlessItIsNone) {
    const std::string action = "154, GPU recovery action changed from ";
    EXPECT_EQ(finding_on(action + "0x0 (None) to 0x1 (GPU Reset Required)").bad_nodes, Names{"n1"});
    EXPECT_EQ(finding_on(action + "0x0 (None) to 0x2 (Node Reboot Required)").bad_nodes, Names{"n1"});
    EXPECT_EQ(finding_on(action + "0x1 (GPU Reset Required) to 0x0 (None)").severity, Severity::Pass);
}

TEST(GpuErrorsLogged, FatalOnesOfSwitchesFail) {
    Cluster cluster = good_cluster();
    cluster.nodes[0].xids = {{.bus_id = "0000:06:00.0", .code = 20034, .age_hours = 1, .of_switch = true}};
    cluster.nodes[0] = unpack_node(pack(cluster.nodes[0]));
    const Finding finding = only_finding(cluster, "GPU errors in the kernel's log");
    EXPECT_EQ(finding.bad_nodes, Names{"n0"});
    expect_says(finding, {"fatal SXid 20034 of NVSwitch 0000:06:00.0, within the last day"});
}

}  // namespace
}  // namespace argosy::preflight
