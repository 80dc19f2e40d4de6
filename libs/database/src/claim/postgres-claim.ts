import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import type { Logger } from '@rookery/platform';
import type { DatabaseError } from '../errors.js';
import type { PostgresOptions } from '../options.js';
import { connectAlone, destroy } from '../postgres/open-postgres.js';
import { anotherHistory, ServerHistory } from '../postgres/server-history.js';
import { type DatabaseClaim, type Held, heldByAnother } from './claim.js';

// Any fixed number will do, other than that of the migrations. Besides it the schema counts: two servers may share a database
// when each has a schema of its own.
const lockClass = 7_246_502;
const lockObject = 'coalesce(hashtext(current_schema()), 0)';

// A process is heard of at least so often, and the server gives up one that says nothing only later, so that no other process
// has the lock while this one still believes that it has.
const heartbeatMs = 10_000;
const heartbeatLimitMs = 10_000;
const sessionSettings = `
  SET tcp_keepalives_idle = 30;
  SET tcp_keepalives_interval = 10;
  SET tcp_keepalives_count = 3;
  SET statement_timeout = ${heartbeatLimitMs};
  SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) IS NOT NULL`;
const againMs = 500;
const farewellMs = 1_000;
/** When a session began, the same in every session's eyes. */
const began = "to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')";

/** A session of the server, by which it is known again. */
interface Session {
  readonly pid: number;
  readonly since: string;
}

interface Holder extends Session {
  readonly application: string | null;
  readonly address: string | null;
}

/** @throws DatabaseError when the server cannot be reached */
export async function claimPostgres(
  options: PostgresOptions,
  logger: Logger,
  isShared: boolean,
): Promise<DatabaseClaim | Held> {
  const claim = new PostgresClaim(options, logger, isShared);
  const held = await claim.take();
  return held === undefined ? claim : { heldBy: held.text };
}

/** An advisory lock on a connection of its own, which no pool closes, and which is taken anew when the connection breaks. */
class PostgresClaim implements DatabaseClaim {
  readonly lost: Promise<DatabaseError>;
  #tellLost: (reason: DatabaseError) => void = () => {};
  #client: pg.Client | undefined;
  #own: Session | undefined;
  readonly #history = new ServerHistory();
  #beating: NodeJS.Timeout | undefined;
  #released = false;

  constructor(
    private readonly options: PostgresOptions,
    private readonly logger: Logger,
    private readonly isShared: boolean,
  ) {
    this.lost = new Promise((resolve) => (this.#tellLost = resolve));
  }

  /** Tries once. @returns who has it, or nothing when it is this process now */
  async take(): Promise<{ readonly holder: Holder | undefined; readonly text: string } | undefined> {
    const client = await connectAlone(this.options);
    try {
      await client.query(sessionSettings);
      const { rows } = await client.query<{ taken: boolean; pid: number; since: string; database: string }>(
        `SELECT pg_try_advisory_lock${this.isShared ? '_shared' : ''}(${lockClass}, ${lockObject}) AS taken, pg_backend_pid() AS pid,
                (SELECT ${began} FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS since,
                current_database() AS database`,
      );
      const [row] = rows;
      if (row?.taken === true) {
        const isAnother = await this.#history.isAnother(client, heartbeatLimitMs);
        this.#keep(client, row);
        if (isAnother) this.#tellLost(anotherHistory());
        return undefined;
      }
      const holder = await holderOf(client);
      await client.end();
      return { holder, text: `${row?.database ?? ''}${holder === undefined ? '' : ` (${describeHolder(holder)})`}` };
    } catch (error) {
      destroy(client);
      throw error;
    }
  }

  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    clearInterval(this.#beating);
    const client = this.#client;
    if (client === undefined) return;
    // A connection that is cut off would never answer.
    await Promise.race([client.end().catch(() => {}), pause(farewellMs, undefined, { ref: false })]);
    destroy(client);
  }

  #keep(client: pg.Client, session: Session): void {
    if (this.#released) return destroy(client);
    this.#client = client;
    this.#own = { pid: session.pid, since: session.since };
    let gone = false;
    const onGone = (err?: unknown): void => {
      if (gone || this.#released) return;
      gone = true;
      clearInterval(this.#beating);
      destroy(client);
      this.logger.warn('The connection that keeps other servers off the database was lost', { err });
      void this.#takeAgain();
    };
    client.on('error', onGone);
    client.on('end', onGone);
    this.#beating = setInterval(() => {
      this.#history.isAnother(client, heartbeatLimitMs).then((isAnother) => {
        if (isAnother) this.#tellLost(anotherHistory());
      }, onGone);
    }, heartbeatMs);
    this.#beating.unref();
  }

  async #takeAgain(): Promise<void> {
    while (!this.#released) {
      try {
        const own = this.#own;
        const held = await this.take();
        if (held === undefined) {
          this.logger.info('The database is kept from other servers again');
          return;
        }
        // The server may take the broken connection for a living one.
        if (held.holder && own && isSame(held.holder, own)) await this.#end(own);
        // Who gave it back meanwhile is looked for again.
        else if (held.holder) return this.#tellLost(heldByAnother(held.text));
      } catch (err) {
        this.logger.debug('The database cannot be claimed just now', { err });
      }
      await pause(againMs, undefined, { ref: false });
    }
  }

  async #end({ pid, since }: Session): Promise<void> {
    const client = await connectAlone(this.options);
    try {
      await client.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND ${began} = $2`, [
        pid,
        since,
      ]);
    } finally {
      await client.end();
    }
  }
}

const describeHolder = ({ application, address, since }: Holder): string =>
  [application, address && `at ${address}`, `since ${since.slice(0, 19)} UTC`].filter(Boolean).join(' ');

const isSame = (one: Session, other: Session): boolean => one.pid === other.pid && one.since === other.since;

async function holderOf(client: pg.Client): Promise<Holder | undefined> {
  const { rows } = await client.query<Holder>(
    `SELECT a.pid, ${began} AS since, nullif(a.application_name, '') AS application, host(a.client_addr) AS address
       FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid = ${lockClass} AND l.objid = (${lockObject}::bigint & 4294967295)::oid`,
  );
  return rows[0];
}
