import { processLockClass as lockClass, presenceLockClass } from '../postgres/process-connections.js';

/** Milliseconds since the epoch by the database's clock: the one that all processes agree on. */
const nowMs = '(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

const asOid = (int4: string): string => `(${int4}::bigint & 4294967295)::oid`;

/** Registers; parameters: name, address, version, how long it lives without a heartbeat (ms). No row when the name is taken. */
export const register = `
  INSERT INTO processes (name, address, version, roles, started_ts, expires_ts, fenced)
  SELECT $1, $2, $3, '[]', ${nowMs}, ${nowMs} + $4::bigint, FALSE
   WHERE NOT EXISTS (SELECT 1 FROM processes WHERE name = $1 AND NOT fenced AND expires_ts > ${nowMs})
  RETURNING number`;

/** The lock under which processes register: no two of one name. */
export const registerTurn = `SELECT pg_advisory_xact_lock(${lockClass}, -1)`;

/** Those that run, and what they say of themselves. */
export const running = `SELECT name, version, address FROM processes WHERE NOT fenced AND expires_ts > ${nowMs} ORDER BY number`;

/**
 * What the connection does that gives the signs of life: while it holds this, its process runs. Nobody ends it, so that whoever is marked
 * can hear of it; a process that was killed has it no more at once. Parameter: number.
 */
export const bePresent = `SELECT pg_advisory_lock_shared(${presenceLockClass}, $1::bigint::int)`;

/** A heartbeat and what there is to know; parameters: own number, time to live (ms), roles (JSON), address. */
export const beat = `
  WITH beat AS (
    UPDATE processes SET expires_ts = ${nowMs} + $2::bigint, roles = $3, address = $4 WHERE number = $1 AND NOT fenced RETURNING number)
  SELECT EXISTS (SELECT 1 FROM beat) AS alive, ${nowMs} AS now,
         (SELECT json_agg(json_build_object('number', number, 'name', name, 'address', address, 'version', version,
                 'roles', roles::json, 'until', expires_ts, 'left', expires_ts - ${nowMs},
                 'expired', expires_ts < ${nowMs}, 'fenced', fenced) ORDER BY number)::text
            FROM processes) AS processes,
         (SELECT json_agg(objid::bigint)::text FROM pg_locks
           WHERE locktype = 'advisory' AND objsubid = 2 AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND classid = ${asOid(presenceLockClass)}) AS present,
         (SELECT json_agg(json_build_object('name', name, 'holder', holder, 'epoch', epoch))::text FROM leases) AS leases`;

/**
 * Takes the right to write from a process without heartbeats; parameters: its number, the time to live (ms), and until when the last
 * sign of life is good of one that has gone: a later one keeps it. Not before a server that was down itself has run for that long:
 * nobody could give it a heartbeat.
 */
export const fence = `
  UPDATE processes SET fenced = TRUE
   WHERE number = $1 AND NOT fenced AND (expires_ts < ${nowMs} OR expires_ts = $3::bigint)
     AND clock_timestamp() - pg_postmaster_start_time() > $2::bigint * interval '1 millisecond'
  RETURNING number`;

const ofProcess = `
  FROM pg_locks
   WHERE locktype = 'advisory' AND objsubid = 2 AND pid <> pg_backend_pid()
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
     AND classid = ${asOid(lockClass)} AND objid = ${asOid('$1::bigint')}`;

/** The connections of a process; parameter: its number. */
export const connections = `SELECT pid ${ofProcess}`;

/** Ends the connections of a process; a row for each that there still is. Parameter: its number. */
export const endConnections = `SELECT pid, pg_terminate_backend(pid) ${ofProcess}`;

/** Takes leases that are free or whose holders are gone; parameters: own number, names, numbers of those who are gone. */
export const acquire = `
  INSERT INTO leases (name, holder, epoch)
  SELECT name, $1::bigint, 1 FROM unnest($2::text[]) AS name
   WHERE EXISTS (SELECT 1 FROM processes WHERE number = $1 AND NOT fenced)
   ORDER BY name
  ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = leases.epoch + 1
   WHERE leases.holder IS NULL OR leases.holder = excluded.holder OR leases.holder = ANY($3::bigint[])
  RETURNING name`;

/** Gives leases up; parameters: own number, names. */
export const release = 'UPDATE leases SET holder = NULL WHERE holder = $1 AND name = ANY($2::text[])';

/** Leaves with connections that may write still: others end them, and have its leases then. Parameter: own number. */
export const leaveInUse = 'UPDATE processes SET fenced = TRUE WHERE number = $1';

/** Leaves: nothing is left of the process but its number; parameter: that. */
export const leave = [
  'UPDATE leases SET holder = NULL WHERE holder = $1',
  'DELETE FROM processes WHERE number = $1',
] as const;

/** Forgets processes that were fenced long ago and have no connections: no row can name them any more. */
export const forgetFenced = `
  DELETE FROM processes WHERE fenced AND expires_ts < ${nowMs} - 3600000
     AND NOT EXISTS (SELECT 1 FROM leases WHERE holder = number)`;
