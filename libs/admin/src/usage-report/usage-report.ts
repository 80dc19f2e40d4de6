import type { Db } from '@rookery/database';
import { type Config, loggerOptions, type LogLevel } from '@rookery/platform';
import { messageFigures } from '@rookery/rooms';
import { returningUsers, userFigures } from '@rookery/users';
import { databaseVersion } from './usage-report.query.js';

/** What a process tells of itself beside the figures of the database. */
export interface ProcessFigures {
  readonly uptimeSeconds: number;
  /** Bytes. */
  readonly residentBytes: number;
  /** Percent of a core since the start. */
  readonly cpuPercent: number;
}

/** The keys that collectors of usage reports know; those of the field's other runtime are absent. */
export type UsageReport = Readonly<Record<string, string | number | null>>;

/**
 * What is sent to `report_stats_endpoint` where `report_stats` is true: counts, the server's name, and how it is set up. No user,
 * room or message is named.
 */
export async function usageReport(
  db: Db,
  config: Config,
  nowMs: number,
  { uptimeSeconds, residentBytes, cpuPercent }: ProcessFigures,
): Promise<UsageReport> {
  const serverName = config.get('server_name');
  const [users, returning, messages, server] = await Promise.all([
    userFigures(db, nowMs),
    returningUsers(db, nowMs),
    messageFigures(db, serverName, nowMs),
    databaseVersion(db),
  ]);
  return {
    homeserver: serverName,
    server_context: config.get('server_context') ?? null,
    timestamp: Math.floor(nowMs / 1000),
    uptime_seconds: Math.floor(uptimeSeconds),
    server_software: 'Rookery',
    // The field's collectors expect KiB.
    memory_rss: Math.round(residentBytes / 1024),
    cpu_average: Math.round(cpuPercent),
    total_users: users.total,
    total_nonbridged_users: users.nonbridged,
    daily_user_type_native: users.madeToday.native,
    daily_user_type_guest: users.madeToday.guest,
    daily_user_type_bridged: users.madeToday.bridged,
    total_room_count: messages.rooms,
    daily_active_users: users.activeToday,
    monthly_active_users: users.activeThisMonth,
    daily_active_rooms: messages.activeRooms,
    daily_active_e2ee_rooms: messages.activeEncryptedRooms,
    daily_messages: messages.messages,
    daily_e2ee_messages: messages.encrypted,
    daily_sent_messages: messages.sent,
    daily_sent_e2ee_messages: messages.sentEncrypted,
    r30v2_users_all: returning.all,
    r30v2_users_android: returning.android,
    r30v2_users_ios: returning.ios,
    r30v2_users_electron: returning.electron,
    r30v2_users_web: returning.web,
    cache_factor: config.get('caches.global_factor'),
    event_cache_size: config.get('event_cache_size'),
    log_level: logLevel(config),
    database_engine: db.dialect.name === 'sqlite' ? 'sqlite3' : 'psycopg2',
    database_server_version: server,
  };
}

/** What collectors call the levels. */
const levelNames: Readonly<Record<LogLevel, string>> = {
  trace: 'DEBUG',
  debug: 'DEBUG',
  info: 'INFO',
  warn: 'WARNING',
  error: 'ERROR',
};

/** The level of the whole server; `null` where the file of the log was spoiled since the start. */
function logLevel(config: Config): string | null {
  try {
    return levelNames[loggerOptions(config).level];
  } catch {
    return null;
  }
}
