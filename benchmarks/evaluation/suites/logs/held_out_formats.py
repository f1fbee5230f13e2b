"""Formats of logs that nothing is trained or tuned on: what they show is how it goes with a log of another kind."""

# ruff: noqa: E501 - lines of logs are as long as they are
from benchmarks.evaluation.suites.logs.message import Entry, LogFormat, messages


def hdfs(entry: Entry) -> str:
    head = f"{entry.time:%y%m%d %H%M%S} {entry.process}"
    return f"{head} {entry.message.level.upper()} dfs.{entry.message.component}: {entry.text}"


def zookeeper(entry: Entry) -> str:
    head = f"{entry.time:%Y-%m-%d %H:%M:%S},{entry.time.microsecond // 1000:03}"
    message = entry.message
    place = f"[{entry.thread}:{message.component}@{entry.process % 900}]"
    return f"{head} - {message.level.upper():<5} {place} - {entry.text}"


def openstack(entry: Entry) -> str:
    component = entry.message.component
    file = f"{'-'.join(component.split('.')[:2])}.log.1.2017-05-16_13:53:08"
    head = f"{entry.time:%Y-%m-%d %H:%M:%S}.{entry.time.microsecond // 1000:03} {entry.process}"
    level = {"warn": "WARNING"}.get(entry.message.level, entry.message.level.upper())
    return f"{file} {head} {level} {component} [req-{entry.thread}] {entry.text}"


def apache(entry: Entry) -> str:
    return (
        f"[{entry.time:%a %b %d %H:%M:%S %Y}] [{entry.message.level.replace('info', 'notice')}] {entry.text}"
    )


def syslog(entry: Entry) -> str:
    return f"{entry.time:%b %d %H:%M:%S} combo {entry.message.component}[{entry.process}]: {entry.text}"


def health(entry: Entry) -> str:
    head = f"{entry.time:%Y%m%d-%H:%M:%S}:{entry.time.microsecond // 1000}"
    return f"{head}|{entry.message.component}|{entry.process}|{entry.text}"


def logfmt(entry: Entry) -> str:
    level = {"warn": "warning"}.get(entry.message.level, entry.message.level)
    text = entry.text.replace('"', "'")
    return f'time="{entry.time:%Y-%m-%dT%H:%M:%SZ}" level={level} msg="{text}" component={entry.message.component}'


def container(entry: Entry) -> str:
    stream = "stderr" if entry.message.is_grave else "stdout"
    stamp = f"{entry.time:%Y-%m-%dT%H:%M:%S.%f}123Z"
    return f"{stamp} {stream} F [{entry.message.level.upper()}] {entry.message.component}: {entry.text}"


HDFS = messages("""
DataNode$DataXceiver | i25 | Receiving block {blk} src: /{ip}:{port} dest: /{ip}:50010
DataNode$PacketResponder | i25 | PacketResponder {n} for block {blk} terminating
DataNode$PacketResponder | i20 | Received block {blk} of size {big} from /{ip}
FSNamesystem | i20 | BLOCK* NameSystem.addStoredBlock: blockMap updated: {ip}:50010 is added to {blk} size {big}
FSNamesystem | i9 | BLOCK* NameSystem.allocateBlock: {path}/part-{n}. {blk}
DataBlockScanner | i6 | Verification succeeded for {blk}
FSDataset | i8 | Deleting block {blk} file {path}
DataNode | i3 | {ip}:50010 Starting thread to transfer block {blk} to {ip}:50010
DataNode$DataXceiver | w3 | {ip}:50010:Got exception while serving {blk} to /{ip}:
DataNode$DataXceiver | w1 | writeBlock {blk} received exception java.io.IOException: Could not read from stream
DataNode$PacketResponder | e1 | PacketResponder {blk} {n} Exception java.io.EOFException
FSDataset | w2 | Unexpected error trying to delete block {blk}. BlockInfo not found in volumeMap.
FSNamesystem | w1 | PendingReplicationMonitor timed out block {blk}
DataNode | e1 | {ip}:50010:Failed to transfer {blk} to {ip}:50010 got java.net.SocketTimeoutException
DataBlockScanner | w1 | Adding an already existing block {blk}
DataNode | e1 | Exiting Datanode: too many failed volumes at {path}
""")
ZOOKEEPER = messages("""
NIOServerCnxnFactory | i20 | Accepted socket connection from /{ip}:{port}
NIOServerCnxn | i18 | Closed socket connection for client /{ip}:{port} which had sessionid 0x{hex}
ZooKeeperServer | i12 | Client attempting to establish new session at /{ip}:{port}
ZooKeeperServer | i8 | Established session 0x{hex} with negotiated timeout {port} for client /{ip}:{port}
FastLeaderElection | i9 | Notification: {n} (n.leader), 0x{hex} (n.zxid), 0x1 (n.round), LOOKING (n.state), {n} (n.sid)
QuorumCnxManager$Listener | i5 | Received connection request /{ip}:{port}
PrepRequestProcessor | i4 | Got user-level KeeperException when processing sessionid:0x{hex} type:create cxid:0x{n} Error Path:/{word}
Learner | i2 | Getting a snapshot from leader 0x{hex}
QuorumPeer | i2 | LOOKING
FileTxnLog | w1 | fsync-ing the write ahead log in SyncThread:{n} took {ms}ms which will adversely effect operation latency
QuorumCnxManager$SendWorker | w3 | Interrupted while waiting for message on queue {n}
QuorumCnxManager$RecvWorker | w4 | Connection broken for id {big}, my id = {n}, error =
QuorumCnxManager | w3 | Cannot open channel to {n} at election address /{ip}:3888
NIOServerCnxn | w3 | caught end of stream exception for sessionid 0x{hex}
NIOServerCnxn | e1 | Unexpected exception causing shutdown of session 0x{hex} while sock still open
Learner | w2 | Unexpected exception, tries={n}, connecting to /{ip}:2888
LearnerHandler | e2 | Unexpected exception causing shutdown while sock still open at /{ip}:{port}
LearnerHandler | w1 | ******* GOODBYE /{ip}:{port} ********
QuorumPeer | e1 | Shutdown called: quorum of {n} was lost, epoch 0x{n}
""")
OPENSTACK = messages("""
nova.osapi_compute.wsgi.server | i25 | {ip} "GET /v2/{hex}/servers/detail HTTP/1.1" status: 200 len: {big} time: 0.{n}
nova.metadata.wsgi.server | i12 | {ip},{ip} "GET /openstack/2013-10-17/meta_data.json HTTP/1.1" status: 200 len: {n} time: 0.{n}
nova.compute.manager | i8 | [instance: {uuid}] VM Started (Lifecycle Event)
nova.virt.libvirt.imagecache | i9 | image {uuid} at ({path}): checking
nova.compute.claims | i6 | [instance: {uuid}] Total memory: {big} MB, used: {big}.00 MB
nova.compute.resource_tracker | i5 | Final resource view: name={host} phys_ram={big}MB used_ram={big}MB
nova.virt.libvirt.driver | i4 | [instance: {uuid}] Creating image
nova.scheduler.host_manager | i3 | Successfully synced instances from host '{host}'.
nova.virt.libvirt.imagecache | w4 | Unknown base file: {path}
nova.compute.manager | w3 | While synchronizing instance power states, found {n} instances in the database and {n} instances on the hypervisor.
nova.compute.manager | e1 | [instance: {uuid}] Instance failed to spawn: no valid host in cell {word}
nova.compute.manager | e1 | [instance: {uuid}] Setting instance vm_state to ERROR after {ms} ms
nova.virt.libvirt.driver | w1 | [instance: {uuid}] During wait destroy, instance disappeared on {host}.
nova.virt.libvirt.driver | e1 | Error launching a defined domain with XML {path}
nova.scheduler.host_manager | w1 | Host {host} has more disk space than database expected ({n} GB > {n} GB)
nova.api.openstack.wsgi | e1 | Unexpected exception in API method for {uuid}
oslo_messaging.rpc.server | e1 | Exception during message handling from {host}: MessagingTimeout {hex}
keystoneauth.session | w1 | Failure: token of {user} expired, {ip} answered 401
""")
APACHE = messages("""
mod_jk | i25 | workerEnv.init() ok /etc/httpd/conf/workers2.properties
mod_jk | i25 | jk2_init() Found child {port} in scoreboard slot {n}
httpd | i3 | Apache/2.0.49 (Fedora) configured -- resuming normal operations
httpd | i2 | Graceful restart requested, doing restart
suexec | i1 | LDAP: Built with OpenLDAP LDAP SDK, cache of {n}
mod_jk | e9 | mod_jk child workerEnv in error state {n}
mod_jk | e2 | jk2_init() Can't find child {port} in scoreboard
client | e4 | [client {ip}] Directory index forbidden by rule: {path}
client | e3 | [client {ip}] File does not exist: {path}
client | e1 | [client {ip}] script not found or unable to stat: {path}
client | e1 | [client {ip}] request failed: URI too long, {big} bytes
mod_jk | e1 | env.createBean2(): Factory error creating channel.jni:jni ( channel.jni, jni), line {n}
httpd | w1 | child process {port} still did not exit, sending a SIGTERM
httpd | e1 | server reached MaxClients setting, consider raising the MaxClients setting of {n}
""")
SYSLOG = messages("""
sshd(pam_unix) | i12 | check pass; user unknown
su(pam_unix) | i8 | session opened for user {user} by (uid=0)
su(pam_unix) | i8 | session closed for user {user}
ftpd | i20 | connection from {ip} ({host}.example.net) at Sun Jul 17 10:{n}:{n} 2005
logrotate | i2 | rotating {path}
crond | i5 | (root) CMD (run-parts /etc/cron.hourly) number {n}
dhcpd | i6 | DHCPACK on {ip} to 00:0d:{n} via eth0
kernel | i4 | eth0: link up, {n}Mbps, full-duplex, lpa 0x{n}
sshd(pam_unix) | w9 | authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser= rhost={ip}  user={user}
logrotate | e1 | ALERT exited abnormally with [{n}]
kernel | e1 | Out of Memory: Killed process {port} ({word}d).
kernel | e2 | EXT3-fs error (device sda{n}): ext3_find_entry: reading directory #{big} offset 0
kernel | w1 | CPU{n}: Temperature above threshold, cpu clock throttled (total events = {big})
ftpd | w2 | ANONYMOUS FTP LOGIN REFUSED FROM {ip}
named | e1 | couldn't add command channel {ip}#{port}: address not available
dhcpd | e1 | no free leases on subnet {ip}
crond | e1 | CRON ({user}) ERROR (failed to change user)
gpm | e1 | imps2: Auto-detected intellimouse PS/2 failed after {n} tries
""")
HEALTH = messages("""
Step_LSC | i25 | onStandStepChanged {port}
Step_LSC | i20 | onExtend:{big} {n} 0 4
Step_SPUtils | i16 | getTodayTotalDetailSteps = {big}##{n}##{big}##{big}
Step_StandReportReceiver | i6 | onReceive action: android.intent.action.SCREEN_ON
Step_ExtSDM | i8 | calculateCaloriesWithCache totalCalories={big}
HiH_HiSyncControl | i3 | checkInsertStatus stepSum or calorieSum is enough, {n}
HiH_ListenerManager | i3 | notifyDataChangeListeners type {n}
Step_DataCache | i2 | not get permission of external sensor, id {n}, using own
HiH_HiSyncUtil | e2 | initDataPrivacy the dataPrivacy is not true, error {n}
HiH_HealthDataInsertStore | e1 | saveHealthDetailData() saveOneDetailData fail hiHealthData = {n},type = {port}
HiH_HiHealthBinder | w1 | getHealthData timeout after {ms}, rebinding
HiH_HiSyncControl | e1 | sync aborted, cloud answered code {port}, who = {n}
Step_FlushableStepDataCache | e1 | upStepData exception, lost {n} records
Step_SPUtils | w1 | setTodayTotalDetailSteps failed to write {path}
""")
CONTROLLER = messages("""
controller | i14 | Reconciled Deployment {word}/{word}-{n} in {ms}ms
kubelet | i14 | Successfully pulled image registry.local/{word}:{hex} in {ms}ms
scheduler | i10 | Successfully assigned {word}/{word}-{hex} to {host}
proxy | i9 | upstream {ip}:{port} answered 200 in {ms}ms
etcd | i6 | compacted revision {big} in {ms}ms
ingress | i12 | {ip} - GET /{word}/{big} 200 {big} {ms}ms
dns | i5 | resolved {word}.{word}.svc to {ip}
autoscaler | i4 | {word}: {n}% of target, {n} replicas wanted
kubelet | i40 | Waiting for volume {word}-{n} to attach, {n}s elapsed
kubelet | w3 | Readiness probe of {word}-{hex} failed: connect to {ip}:{port} refused
kubelet | e2 | Back-off restarting failed container {word} in pod {word}-{hex}
kubelet | e1 | Failed to pull image registry.local/{word}:{hex}: manifest unknown
scheduler | w2 | 0/{n} nodes are available: insufficient memory for {word}-{hex}
etcd | w2 | apply request took too long, {ms}ms, expected 100ms
etcd | e1 | lost leader {hex} at term {n}
ingress | e2 | upstream timed out (110: Connection timed out) while reading from {ip}:{port}
ingress | e1 | certificate of {word}.example.com expired {n} days ago
dns | e1 | plugin/errors: 2 {word}.example.com. A: read udp {ip}:{port}: i/o timeout
autoscaler | e1 | unable to get metrics for resource cpu of {word}-{n}
controller | e1 | {job} has reached the specified backoff limit
controller | f1 | lease of leader {host} lost, stepping down after {ms}ms
proxy | e1 | no endpoints for {word}/{word}, {n} requests dropped
""")

HELD_OUT = (
    LogFormat("hdfs", hdfs, HDFS, trace="java"),
    LogFormat("zookeeper", zookeeper, ZOOKEEPER, ("main", "WorkerSender[myid=1]", "QuorumPeer[myid=1]/0.0.0.0:2181"), trace="java"),
    LogFormat("openstack", openstack, OPENSTACK, ("38101a0b-2096-447d", "addc1839-2ed5-4778 54fadb", "-"), trace="python"),
    LogFormat("apache", apache, APACHE, has_components=False),
    LogFormat("linux", syslog, SYSLOG),
    LogFormat("healthapp", health, HEALTH),
    LogFormat("logfmt", logfmt, CONTROLLER),
    LogFormat("container", container, CONTROLLER),
)  # fmt: skip
