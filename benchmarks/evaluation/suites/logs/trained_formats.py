"""Formats of logs that training may see. Nothing is trained or tuned on those of `held_out_formats`."""

# ruff: noqa: E501 - lines of logs are as long as they are
import json

from benchmarks.evaluation.suites.logs.message import Entry, LogFormat, messages

_LETTERS = {"debug": "D", "info": "I", "warn": "W", "error": "E", "fatal": "F"}


def hadoop(entry: Entry) -> str:
    head = f"{entry.time:%Y-%m-%d %H:%M:%S},{entry.time.microsecond // 1000:03}"
    message = entry.message
    return (
        f"{head} {message.level.upper()} [{entry.thread}] org.apache.hadoop.{message.component}: {entry.text}"
    )


def spark(entry: Entry) -> str:
    return f"{entry.time:%y/%m/%d %H:%M:%S} {entry.message.level.upper()} {entry.message.component}: {entry.text}"


def openssh(entry: Entry) -> str:
    return f"{entry.time:%b %d %H:%M:%S} gate sshd[{entry.process}]: {entry.text}"


def android(entry: Entry) -> str:
    head = f"{entry.time:%m-%d %H:%M:%S}.{entry.time.microsecond // 1000:03}  {entry.process:4}  {entry.process + 7:4}"
    return f"{head} {_LETTERS[entry.message.level]} {entry.message.component}: {entry.text}"


def windows(entry: Entry) -> str:
    name = {"warn": "Warning"}.get(entry.message.level, entry.message.level.capitalize())
    return f"{entry.time:%Y-%m-%d %H:%M:%S}, {name:<22}  {entry.message.component:<6} {entry.text}"


def bluegene(entry: Entry) -> str:
    node = f"R{entry.process % 64:02}-M{entry.process % 2}-N{entry.process % 16:X}-C:J{entry.process % 18:02}-U11"
    alert = {"fatal": "KERNDTLB", "error": "APPREAD"}.get(entry.message.level, "-")
    stamp = f"{entry.time:%Y-%m-%d-%H.%M.%S.%f}"
    level = {"warn": "WARNING"}.get(entry.message.level, entry.message.level.upper())
    head = f"{alert} {int(entry.time.timestamp())} {entry.time:%Y.%m.%d} {node} {stamp} {node} RAS"
    return f"{head} {entry.message.component} {level} {entry.text}"


def json_lines(entry: Entry) -> str:
    return json.dumps(
        {
            "timestamp": f"{entry.time:%Y-%m-%dT%H:%M:%S.%fZ}", "level": entry.message.level,
            "logger": entry.message.component, "pid": entry.process, "message": entry.text,
        }
    )  # fmt: skip


def service(entry: Entry) -> str:
    """As Python's logging is often set up."""
    head = f"{entry.time:%Y-%m-%d %H:%M:%S},{entry.time.microsecond // 1000:03}"
    level = {"warn": "WARNING", "fatal": "CRITICAL"}.get(entry.message.level, entry.message.level.upper())
    return f"{head} - {entry.message.component} - {level} - {entry.text}"


HADOOP = messages("""
mapreduce.v2.app.MRAppMaster | i1 | Created MRAppMaster for application appattempt_{big}_0001
mapred.MapTask | i5 | Processing split: hdfs://{host}:9000/{path}:{big}+{big}
mapred.MapTask | i3 | kvstart = {big}; kvend = {big}; length = {big}
mapreduce.v2.app.job.impl.TaskAttemptImpl | i9 | attempt_{big}_m_{n}_0 TaskAttempt Transitioned from ASSIGNED to RUNNING
mapreduce.v2.app.rm.RMContainerAllocator | i7 | Recalculating schedule, headroom=<memory:{big}, vCores:{n}>
mapreduce.v2.app.rm.RMContainerRequestor | i4 | getResources() for application_{big}: ask={n} release={n} newContainers={n}
mapreduce.v2.app.launcher.ContainerLauncherImpl | i4 | Opening proxy : {host}:{port}
yarn.event.AsyncDispatcher | i2 | Registering class org.apache.hadoop.mapreduce.v2.app.job.event.EventType{n}
mapred.TaskAttemptListenerImpl | i12 | Progress of TaskAttempt attempt_{big}_m_{n}_0 is : 0.{n}
ipc.Client | i60 | Retrying connect to server: {host}:8030. Already tried {n} time(s); retry policy is RetryUpToMaximumCountWithFixedSleep(maxRetries=10)
mapred.ShuffleHandler | i3 | Setting connection close header for {ip}
mapreduce.task.reduce.Fetcher | d4 | fetcher#{n} about to shuffle output of map attempt_{big}_m_{n}_0 len: {big}
hdfs.DFSClient | w2 | Slow ReadProcessor read fields took {ms}ms (threshold=30000ms); ack: seqno: {n}
hdfs.DFSClient | w1 | DataStreamer Exception for block {blk}: Connection reset by peer
hdfs.DFSClient | e1 | Failed to close inode {big} of {path}
hdfs.LeaseRenewer | w3 | Failed to renew lease for [DFSClient_NONMAPREDUCE_{big}_1] for {n} seconds. Will retry shortly ...
mapreduce.v2.app.rm.RMContainerAllocator | e2 | ERROR IN CONTACTING RM. java.net.NoRouteToHostException: No Route to Host from {host}/{ip} to {host}:8030
mapreduce.v2.app.rm.RMContainerAllocator | e1 | Could not deallocate container for task attemptId attempt_{big}_r_{n}_0
mapreduce.v2.app.launcher.ContainerLauncherImpl | e1 | Container launch failed for container_{big}_01_{n} : java.net.SocketTimeoutException: {ms} millis timeout
mapred.TaskAttemptListenerImpl | f1 | Task: attempt_{big}_m_{n}_0 - exited : java.io.IOException: Spill failed
mapreduce.task.reduce.Fetcher | w2 | Failed to connect to {host}:13562 with {n} map outputs
mapred.YarnChild | e1 | Error running child : java.lang.OutOfMemoryError: Java heap space, used {big}K
mapreduce.v2.app.job.impl.JobImpl | e1 | Job {job} failed as tasks failed. failedMaps:{n} failedReduces:0
mapred.MapTask | w1 | Record too large for in-memory buffer: {big} bytes
""")
SPARK = messages("""
executor.Executor | i14 | Running task {n}.0 in stage {n}.0 (TID {big})
executor.Executor | i14 | Finished task {n}.0 in stage {n}.0 (TID {big}). {big} bytes result sent to driver
storage.BlockManager | i9 | Found block rdd_{n}_{n} locally
storage.MemoryStore | i6 | Block broadcast_{n}_piece0 stored as bytes in memory (estimated size {float} KB, free {float} MB)
python.PythonRunner | i8 | Times: total = {n}, boot = {n}, init = {n}, finish = {n}
rdd.HadoopRDD | i3 | Input split: hdfs://{ip}:9000/{path}:{big}+{big}
broadcast.TorrentBroadcast | i2 | Reading broadcast variable {n} took {ms} ms
spark.SecurityManager | i1 | Changing view acls to: {user}
util.Utils | i1 | Successfully started service 'sparkExecutorActorSystem' on port {port}.
spark.CacheManager | i3 | Partition rdd_{n}_{n} not found, computing it
executor.CoarseGrainedExecutorBackend | i6 | Got assigned task {big}
output.FileOutputCommitter | i2 | Saved output of task 'attempt_{big}_m_{n}_0' to {path}
executor.Executor | e2 | Exception in task {n}.0 in stage {n}.0 (TID {big}) java.lang.ArrayIndexOutOfBoundsException: {n}
executor.Executor | w1 | Managed memory leak detected; size = {big} bytes, TID = {big}
executor.CoarseGrainedExecutorBackend | e1 | RECEIVED SIGNAL 15: SIGTERM from driver {ip}:{port}
executor.CoarseGrainedExecutorBackend | w1 | An unknown ({host}:{port}) driver disconnected.
storage.BlockManager | w2 | Putting block rdd_{n}_{n} failed due to an exception
storage.BlockManagerMasterEndpoint | w2 | No more replicas available for rdd_{n}_{n} !
storage.ShuffleBlockFetcherIterator | e2 | Failed to get block(s) from {host}:{port}
network.TransportChannelHandler | e1 | Connection to {host}/{ip}:{port} has been quiet for {big} ms while there are outstanding requests
scheduler.TaskSetManager | w3 | Lost task {n}.0 in stage {n}.0 (TID {big}, {host}): ExecutorLostFailure
scheduler.TaskSetManager | e1 | Task {n} in stage {n}.0 failed 4 times; aborting job {job}
scheduler.DAGScheduler | e1 | {job} failed: collect at Train.scala:{n}, took {float} s
yarn.ApplicationMaster | f1 | User class threw exception: org.apache.spark.SparkException: {job} aborted due to stage failure
""")
OPENSSH = messages("""
sshd | i9 | Accepted password for {user} from {ip} port {port} ssh2
sshd | i7 | pam_unix(sshd:session): session opened for user {user} by (uid=0)
sshd | i6 | pam_unix(sshd:session): session closed for user {user}
sshd | i8 | Received disconnect from {ip}: 11: Bye Bye [preauth]
sshd | i5 | Connection closed by {ip} [preauth]
sshd | i3 | Starting session: command for {user} from {ip} port {port}
sshd | i3 | input_userauth_request: invalid user {user} [preauth]
sshd | i40 | pam_unix(sshd:auth): check pass; user unknown
sshd | w9 | Failed password for invalid user {user} from {ip} port {port} ssh2
sshd | w3 | Invalid user {user} from {ip}
sshd | w2 | reverse mapping checking getaddrinfo for {host}.example.net [{ip}] failed - POSSIBLE BREAK-IN ATTEMPT!
sshd | e1 | error: maximum authentication attempts exceeded for {user} from {ip} port {port} ssh2 [preauth]
sshd | e1 | fatal: Write failed: Connection reset by peer [preauth]
sshd | e2 | error: Received disconnect from {ip}: 3: com.jcraft.jsch.JSchException: Auth fail [preauth]
sshd | e1 | error: connect_to {ip} port {port}: failed.
sshd | w1 | Did not receive identification string from {ip}
sshd | e1 | error: Could not load host key: /etc/ssh/ssh_host_ed25519_key
""")
ANDROID = messages("""
WindowManager | d12 | printFreezingDisplayLogsopening app wtoken = AppWindowToken{{{hex} token=Token{{{hex}}}}}
PowerManagerService | d14 | acquire lock={big}, flags=0x1, tag="RILJ_ACK_WL", name=com.android.phone
PowerManagerService | d14 | release:lock={big}, flag=0x0, tag="RILJ_ACK_WL", name=com.android.phone
StatusBarManagerService | i4 | addNotification key=0|com.tencent.qqmusic|{big}|null|{port}
TextView | i3 | visible is system.time.showampm
NotificationManager | i2 | cancelAllLocked: pkg=com.android.{word}
AudioManager | i5 | getStreamVolume isRestricted mode = 0
DisplayPowerController | d6 | Animating brightness: target={n}, rate={n}
BatteryService | i3 | level:{n}, scale:100, status:2, temperature:{n}
wifi | d5 | scan results received, {n} access points, best rssi -{n}
SensorManager | d3 | registerListener: sensor {n} delay {ms}
PackageManager | w2 | Failed to parse {path}/base.apk: signatures are inconsistent
ActivityManager | e1 | ANR in com.shop.{word} (com.shop.{word}/.MainActivity) PID: {port}
ActivityManager | w2 | Process com.shop.{word} (pid {port}) has crashed too many times: killing!
AudioFlinger | w2 | write blocked for {ms} msecs, {n} delayed writes, thread 0x{hex}
WifiStateMachine | e1 | Did not get supplicant state change from {ip} in {ms} ms
SQLiteLog | e1 | (11) database corruption at line {big} of [{hex}]
System.err | e1 | java.net.UnknownHostException: Unable to resolve host "{host}.example.com"
libc | f1 | Fatal signal 11 (SIGSEGV), code 1, fault addr 0x{hex} in tid {port} (RenderThread)
BatteryService | w1 | Battery temperature {n} over limit, charging stopped
InputDispatcher | e1 | channel '{hex} com.shop.{word}' ~ Channel is unrecoverably broken and will be disposed!
""")
WINDOWS = messages("""
CBS | i14 | Loaded Servicing Stack v6.1.7601.{port} with Core: C:\\Windows\\winsxs\\amd64_{hex}\\cbscore.dll
CBS | i9 | SQM: Initializing online with Windows opt-in: False, session {big}
CSI | i12 | {hex}@2016/9/27:20:{n} CSI Transaction @0x{hex} initialized for deployment engine
CBS | i6 | Read out cached package applicability for package: Package_{n}_for_KB{big}, ApplicableState: 112
CBS | i4 | Session: {big}_{big} initialized by client WindowsUpdateAgent.
CSI | i5 | Performing {n} operations; {n} are not lock/unlock and follow
DPX | i3 | Started DPX phase: Resume and Download Job {n}
CBS | i2 | Warning scan skipped: no packages in session {big}
CBS | w2 | Failed to internally open package. Package_{n}_for_KB{big} [HRESULT = 0x800f0805 - CBS_E_INVALID_PACKAGE]
CBS | w1 | Unrecognized packageExtended attribute in {path}
CSI | e1 | (F) Failed execution of queue item Installer: Driver Install {n} with HRESULT 0x800{n}
CBS | e1 | Failed to resolve package 'Package_for_KB{big}' [HRESULT = 0x80070490 - ERROR_NOT_FOUND]
CBS | e1 | Exec: Processing failed for package KB{big}, needed space {big} bytes
CSI | e1 | Mark store corruption flag because of package: Package_{n}, Component {hex}
DPX | w1 | ProvideRequestedDataByFile failed, Response file Name: {path}
TI | e1 | TrustedInstaller stopped while session {big} was pending
""")
BLUEGENE = messages("""
KERNEL | i20 | instruction cache parity error corrected
KERNEL | i16 | generating core.{port}
KERNEL | i8 | {n} double-hummer alignment exceptions
KERNEL | i6 | CE sym {n}, at 0x{hex}, mask 0x{n}
KERNEL | i4 | total of {n} ddr error(s) detected and corrected
DISCOVERY | i4 | Node card VPD check: U{n} node in processor card slot J{n} do not match
MMCS | i3 | ciodb has been restarted on rack {n}
MONITOR | i3 | monitor caught no exceptional state in cycle {big}
HARDWARE | i3 | Node card status: power good, clock mode {n}
KERNEL | f4 | data TLB error interrupt
KERNEL | f2 | data storage interrupt at 0x{hex}
KERNEL | f1 | rts: kernel terminated for reason {port}
APP | f2 | ciod: failed to read message prefix on control stream (CioStream socket to {ip}:{port}
APP | f1 | ciod: Error loading {path}: invalid or missing program image, No such file or directory
LINKCARD | e1 | MidplaneSwitchController performing bit sparing on R{n} bit {n}: link failed
DISCOVERY | e1 | Found invalid node ecid in processor card slot J{n}, ecid {hex}
MMCS | e1 | idoproxydb hit ASSERT condition: ASSERT expression=0, source line={n}
MONITOR | f1 | No power module U{n} found on link card R{n}
HARDWARE | w2 | PrepareForService shutting down Node card(mLctn(R{n}-M0-N{n})) as part of service action {n}
""")
SERVICE = messages("""
gateway.http | i20 | GET /v1/{word}/{big} 200 in {ms} ms
gateway.http | i9 | POST /v1/{word} 201 in {ms} ms
gateway.auth | i6 | token refreshed for user {user}
db.pool | d9 | connection {n} returned to pool, {n} idle
db.migrate | i1 | schema is at revision {hex}
worker.queue | i12 | picked up task {uuid} from {word}
worker.queue | i9 | task {uuid} finished in {ms} ms
worker.mail | i3 | sent receipt for order {big} to {user}@example.com
cache.redis | d8 | hit ratio {float}% over {n} keys
scheduler | i5 | next run of nightly_{word} in {n} minutes
payments.stripe | i4 | charge ch_{hex} captured, {float} EUR
worker.queue | i30 | waiting for lock {word}, held by {host}, attempt {n}
gateway.http | e2 | GET /v1/{word}/{big} 500 in {ms} ms
gateway.auth | w3 | login refused for {user}: bad password from {ip}
gateway.auth | e1 | cannot verify signature of token {hex}: key is unknown
db.pool | e2 | could not get a connection to {host}:5432 within {ms} ms
db.pool | w2 | {n} connections were reset by {host}
db.migrate | f1 | revision {hex} failed: column "{word}_id" does not exist
worker.queue | e1 | task {uuid} of {job} raised KeyError: '{word}'
worker.queue | w2 | task {uuid} of {job} is retried, attempt {n}
worker.mail | e1 | SMTP server {host} answered 421, message {hex} is dropped
payments.stripe | e1 | charge for order {big} declined: insufficient_funds
cache.redis | w1 | {host}:6379 is read only, writes are skipped
scheduler | e1 | {job} failed: exit code {n}, no further attempts
storage.s3 | e1 | upload of {path} aborted: disk quota of {word} exceeded
""")

TRAINED = (
    LogFormat("hadoop", hadoop, HADOOP, ("main", "AsyncDispatcher event handler", "RMCommunicator Allocator", "IPC Server handler 3 on 62270"), trace="java"),
    LogFormat("spark", spark, SPARK, trace="java"),
    LogFormat("openssh", openssh, OPENSSH, has_components=False),
    LogFormat("android", android, ANDROID, trace="java"),
    LogFormat("windows", windows, WINDOWS),
    LogFormat("bgl", bluegene, BLUEGENE),
    LogFormat("json_lines", json_lines, SERVICE),
    LogFormat("service", service, SERVICE, trace="python"),
)  # fmt: skip
