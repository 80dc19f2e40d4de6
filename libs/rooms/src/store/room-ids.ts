import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, Sequence, StreamIds } from '@rookery/database';
import { Notifier } from '@rookery/replication';

interface Counters {
  readonly events: StreamIds;
  readonly backfill: StreamIds;
  readonly stateGroups: Sequence;
  readonly authChains: Sequence;
  readonly reports: Sequence;
}

/** The counters of this lib: stream orderings, state groups, auth chains. Open them before anything is read or sent. */
@Injectable()
export class RoomIds implements OnModuleInit {
  #counters: Counters | undefined;
  #opening: Promise<void> | undefined;

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
  ) {}

  onModuleInit(): Promise<void> {
    return this.open();
  }

  /** Loads the counters, behind everything the tables hold. Needs the migrated schema. */
  open(): Promise<void> {
    this.#opening ??= this.#load();
    return this.#opening;
  }

  /** The `events` stream: positive stream orderings. `current()` is what readers may read up to. */
  get events(): StreamIds {
    return this.#opened.events;
  }

  /** Negative stream orderings, for history that is fetched later. */
  get backfill(): StreamIds {
    return this.#opened.backfill;
  }

  stateGroup(): Promise<number> {
    return this.#opened.stateGroups.next();
  }

  authChains(count: number): Promise<number[]> {
    return count === 0 ? Promise.resolve([]) : this.#opened.authChains.take(count);
  }

  report(): Promise<number> {
    return this.#opened.reports.next();
  }

  get #opened(): Counters {
    if (!this.#counters) throw new Error('RoomIds.open() has not finished');
    return this.#counters;
  }

  async #load(): Promise<void> {
    const { database } = this;
    const taken = await database.get<Record<'live' | 'past' | 'groups' | 'chains' | 'reports', number | null>>(
      `SELECT (SELECT MAX(stream_ordering) FROM events) AS live, (SELECT MIN(stream_ordering) FROM events) AS past,
         (SELECT MAX(id) FROM state_groups) AS groups, (SELECT MAX(chain_id) FROM event_auth_chains) AS chains,
         (SELECT MAX(id) FROM event_reports) AS reports`,
    );
    this.#counters = {
      events: await StreamIds.load(database, 'events', { takenUpTo: Math.max(0, taken?.live ?? 0) }),
      backfill: await StreamIds.load(database, 'backfill', {
        direction: 'down',
        takenUpTo: Math.max(0, -(taken?.past ?? 0)),
      }),
      stateGroups: await Sequence.load(database, 'state_group_id_seq', { takenUpTo: taken?.groups ?? 0 }),
      authChains: await Sequence.load(database, 'event_auth_chain_id', { takenUpTo: taken?.chains ?? 0 }),
      reports: await Sequence.load(database, 'reports', { takenUpTo: taken?.reports ?? 0 }),
    };
    this.notifier.track(this.#counters.events);
  }
}
