import pg from 'pg';
import type { Clock, Logger } from '@rookery/platform';
import type { Database } from '../database.js';
import { DatabaseError, errorCode, errorText, passing } from '../errors.js';
import { type PostgresOptions, postgresTarget, type PostgresTarget, type TlsChoice } from '../options.js';
import type { StatementObserver, TransactionReport } from '../transaction.js';
import { checkPostgres, createStatement, type PostgresFacts } from './postgres-checks.js';
import { PostgresDatabase } from './postgres-database.js';
import { joinConnection } from './process-connections.js';

const statementTimeoutMs = 60_000;
const idleMs = 60_000;
// The server frees what a process holds that was cut off in the middle of a transaction.
const idleInTransactionMs = 300_000;
const keepAliveMs = 30_000;
// By statements, because connection poolers refuse parameters at connection.
const sessionSettings = `
  SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY;
  SET statement_timeout = ${statementTimeoutMs};
  SET idle_in_transaction_session_timeout = ${idleInTransactionMs};
  SET bytea_output = 'hex'`;

// Statements that a transaction issues together travel together. The driver's types do not know it yet.
const pipelined = { pipeline: true } as object;

const int8 = 20;
const numeric = 1700;
const json = 114;
const jsonb = 3802;
const asNumber = (text: string): number => Number(text);
const asText = (text: string): string => text;
const int8Array = 1016;

/** Numbers as numbers, JSON as text; the driver's defaults for the rest. */
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary'): (text: string) => unknown {
    if (oid === int8 || oid === numeric) return asNumber;
    if (oid === json || oid === jsonb) return asText;
    const standard = pg.types.getTypeParser(oid === int8Array ? 1007 : oid, format as 'text') as (
      text: string,
    ) => unknown;
    return standard;
  },
};

/** @throws DatabaseError when the server cannot be reached or the database cannot be used */
export async function openPostgres(
  options: PostgresOptions,
  clock: Clock,
  logger: Logger,
  onTransaction?: (report: TransactionReport) => void,
  onStatement?: StatementObserver,
  processNumber?: number,
): Promise<Database> {
  const target = postgresTarget(options);
  const pool = await connect(target, { maxUses: options.txnLimit ?? 0, logger, processNumber });
  try {
    const { rows } = await pool.query<PostgresFacts>(
      `SELECT current_setting('server_version') AS version, datcollate AS "collate", datctype AS ctype,
              to_jsonb(d) ->> 'datlocprovider' AS provider,
              coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale') AS locale,
              pg_encoding_to_char(encoding) AS encoding, datname AS database, pg_is_in_recovery() AS standby
         FROM pg_database AS d WHERE datname = current_database()`,
    );
    if (rows[0]) checkPostgres(rows[0], options.allowUnsafeLocale ?? false, target.user ?? 'rookery', logger);
  } catch (error) {
    await pool.end();
    throw error instanceof DatabaseError ? error : explain(error, target);
  }
  return new PostgresDatabase({
    ...{ pool, clock, logger, onTransaction, onStatement, disconnect: () => pool.end() },
  });
}

interface PoolOptions {
  readonly maxUses: number;
  readonly logger: Logger;
  /** Of the process whose connections they are, where a server has several. */
  readonly processNumber: number | undefined;
}

async function connect(target: PostgresTarget, options: PoolOptions): Promise<pg.Pool> {
  let refusal: unknown;
  for (const ssl of target.tls) {
    const pool = openPool(target, ssl, options);
    try {
      (await pool.connect()).release();
      return pool;
    } catch (error) {
      await pool.end();
      refusal = error;
      if (!/does not support SSL/.test(errorText(error))) break;
    }
  }
  throw refusal instanceof DatabaseError ? refusal : explain(refusal, target);
}

/**
 * A connection that belongs to no pool. That it breaks ends nothing: who needs to know listens for `end`.
 * @throws DatabaseError when the server cannot be reached
 */
export async function connectAlone(options: PostgresOptions): Promise<pg.Client> {
  const target = postgresTarget(options);
  let refusal: unknown;
  for (const ssl of target.tls) {
    const client = new pg.Client(connectionOptions(target, ssl));
    client.on('error', () => {});
    try {
      await client.connect();
      return client;
    } catch (error) {
      refusal = error;
      if (!/does not support SSL/.test(errorText(error))) break;
    }
  }
  throw explain(refusal, target);
}

/** Ends a connection without a farewell, which a dead one would wait for. */
export function destroy(client: pg.Client): void {
  const { connection } = client as unknown as { readonly connection: { readonly stream: { destroy(): void } } };
  connection.stream.destroy();
}

const connectionOptions = (target: PostgresTarget, ssl: TlsChoice | false): pg.ClientConfig => ({
  host: target.host,
  port: target.port,
  ...(target.user !== undefined && { user: target.user }),
  ...(target.password !== undefined && { password: target.password }),
  ...(target.database !== undefined && { database: target.database }),
  ssl,
  connectionTimeoutMillis: target.connectTimeoutMs,
  application_name: target.applicationName,
  types,
  keepAlive: true,
  keepAliveInitialDelayMillis: keepAliveMs,
  ...(target.serverOptions !== undefined && { options: target.serverOptions }),
});

function openPool(
  target: PostgresTarget,
  ssl: TlsChoice | false,
  { maxUses, logger, processNumber }: PoolOptions,
): pg.Pool {
  const pool = new pg.Pool({
    ...connectionOptions(target, ssl),
    max: target.poolMax,
    min: target.poolMin,
    idleTimeoutMillis: idleMs,
    types,
    ...pipelined,
    ...(maxUses > 0 && { maxUses }),
    onConnect: async (client) => {
      // A connection that breaks between two statements of a transaction reports it to nobody else, and an error event
      // without a listener ends the process. The next statement fails and says why.
      client.on('error', (error) => logger.warn('A connection to PostgreSQL was lost', { err: error }));
      await client.query(sessionSettings);
      if (processNumber !== undefined) await join(client, processNumber);
    },
  });
  // Said above, where it is also heard of connections in use.
  pool.on('error', () => {});
  return pool;
}

/** @throws DatabaseError when the process has no right to write any more */
async function join(client: pg.ClientBase, processNumber: number): Promise<void> {
  const [lock, check] = joinConnection(processNumber);
  await client.query(lock);
  if ((await client.query(check)).rowCount === 1) return;
  // Whoever asks again is answered by another process, or by this one once it has begun anew.
  throw passing(new DatabaseError('This process has lost its right to write: others have taken its work over'));
}

function explain(error: unknown, target: PostgresTarget): DatabaseError {
  const at = target.host.startsWith('/') ? target.host : `${target.host}:${target.port}`;
  const options = { cause: error };
  const first = error instanceof AggregateError ? error.errors[0] : error;
  switch (errorCode(error) ?? errorCode(first)) {
    case '28P01':
    case '28000':
      return new DatabaseError(
        `PostgreSQL at ${at} refused the user ${target.user ?? '(none given)'}: ${errorText(error)}`,
        `Check user and password in ${target.setting}.args, and pg_hba.conf on the server.`,
        options,
      );
    case '3D000':
      return new DatabaseError(
        `PostgreSQL at ${at} has no database ${target.database}`,
        `Create it: ${createStatement(target.database ?? 'rookery', target.user ?? 'rookery')}`,
        options,
      );
    case '53300':
      return new DatabaseError(
        `PostgreSQL at ${at} takes no more connections`,
        `Raise max_connections there or lower ${target.setting}.args.cp_max.`,
        options,
      );
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return new DatabaseError(
        `The host ${target.host} of the database is not known`,
        `Check ${target.setting}.args.host.`,
        options,
      );
    default:
      return new DatabaseError(
        `Cannot connect to PostgreSQL at ${at}: ${errorText(error)}`,
        `Check that it runs, and host, port and sslmode in ${target.setting}.args.`,
        options,
      );
  }
}
