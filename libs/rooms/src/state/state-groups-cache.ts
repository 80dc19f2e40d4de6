import { Injectable } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { stateKeyOf, type StateMap } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { keysApart, laidOver, LayeredState, merged, type StateBase } from './layered-state.js';
import { type ChainLink, selectChain, selectChains, selectDeltas } from './state-groups.query.js';
import { groupPages } from './state-pages.js';

/** Entries of all cached maps together, about 100 MB; before the factor of the settings. */
const maxEntries = 400_000;
/** Entries of all that is known to lie above these, and keys of all differences between two of them; before the factor. */
const maxAbove = 100_000;
const maxApart = 100_000;
/** A group in whose chain this many changes have come together is held whole, and others above it by what has changed since. */
const changesAbove = 4_096;
/** Keys that are gathered before others get a turn. */
const keysPerTurn = 5_000;

/** States of groups, which never change once written: few of them whole, the others by what lies above these. */
@Injectable()
export class StateGroups {
  /** Whole states. */
  readonly #bases: Cache<number, StateMap>;
  /** Of other groups: which whole one they rest upon, and what lies above it. */
  readonly #above: Cache<number, { readonly base: number; readonly rows: StateMap }>;
  /** The keys at which two whole states differ, by both groups. */
  readonly #apart: Cache<string, ReadonlySet<string>>;

  constructor(
    private readonly stores: DataStores,
    config: Config,
  ) {
    this.#bases = new Cache(config, 'state_groups', {
      invalidation: 'never',
      max: maxEntries,
      sizeOf: (state) => state.size + 8,
    });
    this.#above = new Cache(config, 'state_groups_above', {
      invalidation: 'never',
      max: maxAbove,
      sizeOf: ({ rows }) => rows.size + 8,
    });
    this.#apart = new Cache(config, 'state_groups_apart', {
      invalidation: 'never',
      max: maxApart,
      sizeOf: (keys) => keys.size + 8,
    });
  }

  /**
   * The states of groups, by group. What of them is not known is read in parts.
   * @throws Error when one does not exist: no room's state is empty, so that a missing one must never be taken for one
   */
  async all(groups: Iterable<number>): Promise<Map<number, LayeredState>> {
    const found = new Map<number, LayeredState>();
    const unknown: number[] = [];
    for (const group of new Set(groups)) {
      const known = await this.#known(group);
      if (known) found.set(group, known);
      else unknown.push(group);
    }
    if (unknown.length === 0) return found;
    for (const [group, chain] of await selectChains(this.stores.state, unknown))
      found.set(group, await this.#read(group, chain));
    return found;
  }

  /**
   * Keys at which some states may differ: all at which any two of them do, and others at which something has changed in any. What they rest
   * upon is compared once.
   */
  async apart(states: readonly LayeredState[]): Promise<Set<string>> {
    const keys = new Set<string>();
    const [first, ...others] = states;
    let looked = 0;
    const add = async (some: Iterable<string>): Promise<void> => {
      for (const key of some) {
        if (++looked % keysPerTurn === 0) await nextTurn();
        keys.add(key);
      }
    };
    for (const { above } of states) for (const layer of above) await add(layer.keys());
    const bases = new Map(others.map(({ base }) => [base.group, base]));
    if (first) for (const base of bases.values()) await add(await this.#basesApart(first.base, base));
    return keys;
  }

  forget(groups: Iterable<number>): void {
    for (const group of groups) {
      this.#bases.delete(group);
      this.#above.delete(group);
    }
  }

  async #basesApart(one: StateBase, other: StateBase): Promise<ReadonlySet<string>> {
    if (one.group === other.group) return new Set();
    const key = `${Math.min(one.group, other.group)} ${Math.max(one.group, other.group)}`;
    const known = this.#apart.get(key);
    if (known) return known;
    const apart = await keysApart(one.state, other.state);
    this.#apart.set(key, apart);
    return apart;
  }

  async #known(group: number): Promise<LayeredState | undefined> {
    const whole = this.#bases.get(group);
    if (whole) return new LayeredState({ group, state: whole });
    const known = this.#above.get(group);
    if (!known) return undefined;
    return new LayeredState(await this.#base(known.base), [known.rows]);
  }

  async #base(group: number, chain?: readonly ChainLink[]): Promise<StateBase> {
    const known = this.#bases.get(group);
    if (known) return { group, state: known };
    const layers: StateMap[] = [];
    for (const link of chain ?? (await selectChain(this.stores.state, group)))
      layers.unshift(await this.#rowsOf(link.group));
    const state = layers.length === 1 ? layers[0]! : await laidOver(layers);
    if (state.size === 0) throw new Error(`There is no state group ${group}`);
    this.#bases.set(group, state);
    return { group, state };
  }

  async #read(group: number, chain: readonly ChainLink[]): Promise<LayeredState> {
    const found = chain.findIndex(({ position }) => position % changesAbove === 0);
    const at = found < 0 ? chain.length - 1 : found;
    const anchor = chain[at];
    if (!anchor) throw new Error(`There is no state group ${group}`);
    const base = await this.#base(anchor.group, chain.slice(at));
    if (at === 0) return new LayeredState(base);
    // What is known of one below need not be read once more.
    const known = chain.findIndex((link, index) => index < at && this.#above.get(link.group)?.base === anchor.group);
    const end = known < 0 ? at : known;
    const links = chain.slice(0, end).map((link) => link.group);
    const deltas = await selectDeltas(this.stores.state, links);
    const below = known < 0 ? undefined : this.#above.get(chain[known]!.group)?.rows;
    const rows = merged([...(below ? [below] : []), ...links.reverse().map((link) => deltas.get(link) ?? new Map())]);
    this.#above.set(group, { base: anchor.group, rows });
    return new LayeredState(base, [rows]);
  }

  async #rowsOf(group: number): Promise<StateMap> {
    const rows = new Map<string, string>();
    for await (const page of groupPages(this.stores.state, group))
      for (const row of page) rows.set(stateKeyOf(row.type, row.state_key), row.event_id);
    return rows;
  }
}
