import { setImmediate as nextTurn } from 'node:timers/promises';
import type { RoomEvent } from '@rookery/events';
import type { Conflict } from './conflict.js';
import { type AuthLinks, type ResolveOptions, StateResolutionLimitError, type StateResProvider } from './provider.js';

const defaultMaxEvents = 500_000;
/** Ids in one question to the provider, and in all that are asked before others run: a provider may answer within the same turn. */
const batchSize = 500;
/** Events handled between two turns of the event loop. */
const stride = 512;

/** The events of one resolution: loaded in batches, each once, counted, and dropped together when it ends. */
export class ResolutionEvents {
  private readonly events = new Map<string, RoomEvent | undefined>();
  private readonly rejected = new Set<string>();
  private readonly linked = new Map<string, AuthLinks | undefined>();
  private readonly maxEvents: number;
  private readonly signal: AbortSignal | undefined;
  private readonly yieldTurn: () => Promise<void>;
  private steps = 0;
  /** Ids that were asked for since others ran. */
  private asked = 0;

  constructor(
    private readonly provider: StateResProvider,
    options: ResolveOptions,
  ) {
    this.maxEvents = options.maxEvents ?? defaultMaxEvents;
    this.signal = options.signal;
    this.yieldTurn = options.turn ?? nextTurn;
  }

  /** Loads what is missing of these events. */
  load(ids: Iterable<string>): Promise<void> {
    return this.loadInto(this.events, ids, async (batch) => {
      const [events, rejected] = await Promise.all([this.provider.events(batch), this.provider.isRejected?.(batch)]);
      for (const id of rejected ?? []) this.rejected.add(id);
      return events;
    });
  }

  /** Loads the places of these events in the graph of auth events. */
  async loadLinks(ids: Iterable<string>): Promise<void> {
    const { provider } = this;
    if (provider.authLinks === undefined) return this.load(ids);
    return this.loadInto(this.linked, ids, (batch) => provider.authLinks?.(batch) ?? Promise.resolve(new Map()));
  }

  /** An event that {@link load} was asked for; `undefined` when nobody has it. */
  get(id: string): RoomEvent | undefined {
    return this.events.get(id);
  }

  /** Whether an event that {@link load} was asked for was rejected. */
  isRejected(id: string): boolean {
    return this.rejected.has(id);
  }

  /** The place of an event that {@link loadLinks} was asked for; `undefined` when nobody has the event. */
  links(id: string): AuthLinks | undefined {
    return this.linked.get(id) ?? this.events.get(id);
  }

  /** Call once per unit of work: lets others run every now and then, and notices a cancellation. */
  pause(): Promise<void> | undefined {
    return ++this.steps % stride === 0 ? this.turn() : undefined;
  }

  /** The provider's own auth difference; `undefined` when it cannot tell. */
  async indexedAuthDifference({ sets, unconflicted }: Conflict): Promise<ReadonlySet<string> | undefined> {
    const found = await this.provider.authDifference?.(
      sets.map((set) => new Set(set.values())),
      unconflicted,
      this.signal,
    );
    this.signal?.throwIfAborted();
    return found;
  }

  private async turn(): Promise<void> {
    await this.yieldTurn();
    this.signal?.throwIfAborted();
  }

  private async loadInto<T>(
    into: Map<string, T | undefined>,
    ids: Iterable<string>,
    read: (batch: string[]) => Promise<ReadonlyMap<string, T>>,
  ): Promise<void> {
    const missing: string[] = [];
    for (const id of ids) {
      if (into.has(id)) continue;
      into.set(id, undefined);
      missing.push(id);
    }
    this.signal?.throwIfAborted();
    if (missing.length === 0) return;
    if (into.size > this.maxEvents) throw new StateResolutionLimitError(this.maxEvents);
    for (let start = 0; start < missing.length; start += batchSize) {
      const batch = missing.slice(start, start + batchSize);
      this.asked += batch.length;
      if (this.asked > batchSize) {
        this.asked = batch.length;
        await this.turn();
      }
      const found = await read(batch);
      this.signal?.throwIfAborted();
      for (const id of batch) into.set(id, found.get(id));
    }
  }
}
