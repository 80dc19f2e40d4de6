/** Streams, the bus that announces them, remote calls, who does what. */
export { Bus, type BusMessage, InProcessBus } from './bus.js';
export { cursorOf, forgetCursor, forgetCursors, saveCursor } from './cursor.query.js';
export { Follower, inBatches } from './follower.js';
export { Invalidations } from './invalidations.js';
export { replicationMigrations } from './migrations.js';
export { Notifier } from './notifier.js';
export { type Eagerness, LeasedRoles } from './roles/leased-roles.js';
export { type Leases, type LeaseView, writerLease } from './roles/leases.js';
export { LocalRoles } from './roles/local-roles.js';
export { defineRole, type Role, Roles, type RoleWork, shardOf } from './roles/roles.js';
export { RedisBus, type RedisOptions } from './redis-bus.js';
export { HttpRpc, type RpcAddress } from './rpc/http-rpc.js';
export { defineRpc, InProcessRpc, instanceOf, Rpc, type RpcMethod } from './rpc/rpc.js';
export { type ChangedKeys, type News, Stream } from './streams/stream.js';
export { defineStream, type KeysOf, type StreamReader, type StreamRow } from './streams/stream-definition.js';
export { StreamWriters } from './streams/stream-writers.js';
export { Streams } from './streams/streams.js';
