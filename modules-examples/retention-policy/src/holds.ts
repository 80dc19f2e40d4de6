import { createHash } from 'node:crypto';
import type { ModuleApi } from '@rookery/module-api';

/** That something is held. */
export interface Hold {
  /** A room or a user. */
  readonly id: string;
  readonly reason: string;
  /** Who said so; `null` for the settings. */
  readonly by: string | null;
  readonly ts: number | null;
}

const prefix = 'hold/';
/** Ids can be longer than keys may be. */
const keyOf = (id: string): string => prefix + createHash('sha256').update(id).digest('hex');
/** So many can be held: each is looked at wherever something is about to be removed. */
const maxHolds = 1_000;
/** More pieces of state are not asked for at once. */
const maxFilter = 1_000;
const all = 'all';

/** What is held: by the settings, and by administrators while the server runs. */
export class Holds {
  readonly #stored: (key: string) => Promise<readonly Hold[]>;

  constructor(
    private readonly api: ModuleApi,
    private readonly fixed: readonly string[],
  ) {
    this.#stored = api.registerCachedFunction('holds', () => this.#load(), { maxEntries: 1 });
  }

  async list(): Promise<readonly Hold[]> {
    const settings = this.fixed.map((id) => ({ id, reason: 'the settings', by: null, ts: null }));
    return [...settings, ...(await this.#stored(all))];
  }

  async #load(): Promise<readonly Hold[]> {
    const found = await this.api.store.list({ prefix, limit: maxHolds });
    return found.map(({ value }) => value as Hold);
  }

  /** Whether it is held now: not where there are too many. */
  async place(hold: Hold): Promise<boolean> {
    const held = await this.#stored(all);
    if (held.length >= maxHolds && !held.some(({ id }) => id === hold.id)) return false;
    await this.api.store.put(keyOf(hold.id), hold);
    await this.api.invalidateCache('holds', all);
    return true;
  }

  /** Whether it was held. */
  async release(id: string): Promise<boolean> {
    const wasHeld = await this.api.store.delete(keyOf(id));
    await this.api.invalidateCache('holds', all);
    return wasHeld;
  }

  /** Why nothing of a room may be removed: it is held, or somebody is who is or was in it. */
  async ofRoom(roomId: string): Promise<Hold | undefined> {
    const held = await this.list();
    const own = held.find(({ id }) => id === roomId);
    const users = held.filter(({ id }) => id.startsWith('@'));
    if (own || users.length === 0) return own;
    const filter = users.map(({ id }) => ['m.room.member', id] as const);
    for (let from = 0; from < filter.length; from += maxFilter) {
      const [member] = await this.api.getStateEventsInRoom(roomId, filter.slice(from, from + maxFilter));
      if (member) return users.find(({ id }) => id === member.stateKey);
    }
    return undefined;
  }

  async ofUser(userId: string): Promise<Hold | undefined> {
    return (await this.list()).find(({ id }) => id === userId);
  }
}
