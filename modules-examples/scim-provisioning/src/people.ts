import { createHash, randomUUID } from 'node:crypto';
import { type DocumentStore, MatrixError, type ModuleApi } from '@rookery/module-api';
import { type Attributes, ScimError, type User } from './protocol.js';

const digest = (text: string): string => createHash('sha256').update(text).digest('hex');
const users = 'user/';
const keyOf = (id: string): string => users + id;
/** Names of directories make no difference between large and small letters. */
const nameKey = (userName: string): string => `name/${digest(userName.toLowerCase())}`;
const externalKey = (externalId: string): string => `external/${digest(externalId)}`;
const accountKey = (userId: string): string => `account/${digest(userId)}`;
/** That the directory is having the account made. */
const begunKey = (userId: string): string => `begun/${digest(userId)}`;
/** What of the last changes of somebody has not been done to their account yet. */
const openKey = (id: string): string => `open/${id}`;
const pageSize = 500;

interface Open {
  /** Of the last of these changes. */
  readonly change: string;
  /** Ids at the provider by which nobody is to come to the account any more. */
  readonly untie: readonly string[];
  /** Whether the profile is to have the directory's name. */
  readonly name: boolean;
}

/** How accounts are made and tied. */
export interface Manner {
  readonly authProvider: string | undefined;
  readonly adopt: boolean;
}

/** The people of a directory, and their accounts. */
export class People {
  readonly #active: (userId: string) => Promise<boolean>;

  constructor(
    private readonly api: ModuleApi,
    private readonly manner: Manner,
  ) {
    // Asked for every request.
    this.#active = api.registerCachedFunction('active', (userId) => this.#loadActive(userId), { maxEntries: 50_000 });
  }

  /** Whether somebody may use their account; those whom the directory does not know may. */
  isActive(userId: string): Promise<boolean> {
    return this.#active(userId);
  }

  async #loadActive(userId: string): Promise<boolean> {
    const id = await this.api.store.get(accountKey(userId));
    return typeof id !== 'string' || ((await this.byId(id))?.active ?? true);
  }

  async byId(id: string): Promise<User | undefined> {
    // Ids are our own: anything else would be a key of something else.
    return /^[0-9a-f-]{36}$/.test(id) ? ((await this.api.store.get(keyOf(id))) as User | undefined) : undefined;
  }

  byName(userName: string): Promise<User | undefined> {
    return this.#by(nameKey(userName));
  }

  byExternalId(externalId: string): Promise<User | undefined> {
    return this.#by(externalKey(externalId));
  }

  async #by(key: string): Promise<User | undefined> {
    const id = await this.api.store.get(key);
    return typeof id === 'string' ? this.byId(id) : undefined;
  }

  /** Some people in an order that stays, and how many there are. */
  async list(skip: number, count: number): Promise<{ readonly found: readonly User[]; readonly total: number }> {
    const found: User[] = [];
    let total = 0;
    let after: string | undefined;
    do {
      const page = await this.api.store.list({
        prefix: users,
        limit: pageSize,
        ...(after === undefined ? {} : { after }),
      });
      for (const { value } of page) {
        if (total >= skip && found.length < count) found.push(value as User);
        total++;
      }
      after = page.length === pageSize ? page.at(-1)?.key : undefined;
    } while (after !== undefined);
    return { found, total };
  }

  /** Makes an account. @throws ScimError 409 when the name or the `externalId` is taken, 400 when no account can have the name */
  async add(attributes: Attributes): Promise<User> {
    await this.#assertFree(attributes, { userId: this.api.getQualifiedUserId(localpartOf(attributes)) });
    const userId = await this.#account(attributes);
    const nowMs = this.api.getCurrentTimeMsec();
    const user: User = { ...attributes, id: randomUUID(), userId, createdMs: nowMs, modifiedMs: nowMs };
    const isTaken = await this.api.store.transaction(async (tx) => {
      if ((await tx.get(accountKey(userId))) !== undefined || (await isOthers(tx, user))) return true;
      await write(tx, user);
      await tx.delete(begunKey(userId));
      return false;
    });
    if (isTaken) throw taken('The account, or the externalId, belongs to somebody else in the directory');
    await this.api.invalidateCache('active', userId);
    await this.#carryOut(user);
    return user;
  }

  /**
   * Changes somebody. Several changes at a time come one after the other: none of them brings back what another one changed.
   * @param wanted what becomes of what they are now
   * @throws ScimError 404 when they are gone, 409 when the name or the `externalId` is taken, and what `wanted` throws
   */
  async change(id: string, wanted: (now: User) => Attributes): Promise<User> {
    const known = await this.byId(id);
    if (!known) throw gone();
    await this.#assertFree(wanted(known), known);
    let outcome: { readonly after: User } | { readonly error: unknown } = { error: gone() };
    await this.api.store.transaction(async (tx) => {
      const before = (await tx.get(keyOf(id))) as User | undefined;
      outcome = { error: gone() };
      if (!before) return;
      try {
        const { userName, externalId, displayName, emails, active } = wanted(before);
        const modifiedMs = this.api.getCurrentTimeMsec();
        outcome = {
          after: { ...before, ...{ userName, externalId, displayName, emails, active, modifiedMs } },
        };
      } catch (error) {
        outcome = { error };
        return;
      }
      if (await isOthers(tx, outcome.after)) {
        outcome = { error: taken('userName or externalId is taken') };
        return;
      }
      await forget(tx, before);
      await write(tx, outcome.after);
      await tx.put(openKey(id), opened((await tx.get(openKey(id))) as Open | undefined, before, outcome.after));
    });
    const done = outcome as { readonly after: User } | { readonly error: unknown };
    if ('error' in done) throw done.error;
    const { after } = done;
    // Before anything that may fail: whoever is switched off is out at once.
    await this.api.invalidateCache('active', after.userId);
    await this.#carryOut(after);
    return after;
  }

  /** Closes the account for good. */
  async remove(user: User): Promise<void> {
    await this.api.deactivateUser(user.userId);
    const { untie } = await this.#open(user.id);
    for (const externalId of [...untie, user.externalId]) await this.#untie(user.userId, externalId);
    await this.api.store.transaction(async (tx) => {
      const now = (await tx.get(keyOf(user.id))) as User | undefined;
      if (now) await forget(tx, now);
      await tx.delete(openKey(user.id));
    });
    await this.api.invalidateCache('active', user.userId);
  }

  /** @param own what may be theirs already */
  async #assertFree(
    { userName, externalId }: Attributes,
    own: { readonly id?: string; readonly userId: string },
  ): Promise<void> {
    const same = [
      await this.byName(userName),
      externalId === undefined ? undefined : await this.byExternalId(externalId),
    ];
    if (same.some((one) => one && one.id !== own.id)) throw taken('userName or externalId is taken');
    const { authProvider } = this.manner;
    if (authProvider === undefined || externalId === undefined) return;
    const tied = await this.api.getUserByExternalId(authProvider, externalId);
    if (tied !== undefined && tied !== own.userId) throw taken('externalId belongs to another account');
  }

  async #account(attributes: Attributes): Promise<string> {
    const { displayName, emails } = attributes;
    const localpart = localpartOf(attributes);
    const userId = this.api.getQualifiedUserId(localpart);
    const { store } = this.api;
    // Left by an attempt that ended between the account and what is kept of it: directories try again.
    const isBegun = (await store.get(begunKey(userId))) !== undefined;
    if (!isBegun && (await this.#existing(userId)) === undefined)
      await store.put(begunKey(userId), this.api.getCurrentTimeMsec());
    try {
      return await this.api.registerUser(localpart, { ...(displayName === undefined ? {} : { displayName }), emails });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      if (!isBegun) await store.delete(begunKey(userId));
      const known = await this.#existing(userId);
      if (known === undefined) {
        if (error.errcode === 'M_THREEPID_IN_USE') throw taken('An address belongs to another account');
        throw new ScimError(400, error.message, 'invalidValue');
      }
      const { isDeactivated } = await this.api.getUserinfoById(known).then((info) => info ?? { isDeactivated: true });
      if (isDeactivated) throw taken('An account of this name was here and is closed');
      if (isBegun || this.manner.adopt) return known;
      throw taken('An account of this name is here already');
    }
  }

  /** The account of an id that may be none. */
  #existing(userId: string): Promise<string | undefined> {
    return this.api.checkUserExists(userId).catch(() => undefined);
  }

  async #open(id: string): Promise<Open> {
    return ((await this.api.store.get(openKey(id))) as Open | undefined) ?? { change: '', untie: [], name: false };
  }

  /** Does to the account what is kept of somebody, also what attempts before left open: directories try again. */
  async #carryOut(user: User): Promise<void> {
    const { userId, externalId, displayName } = user;
    const { change, untie, name } = await this.#open(user.id);
    for (const former of untie) await this.#untie(userId, former);
    await this.#tie(userId, externalId);
    if (name && displayName !== undefined) await this.api.setDisplayname(userId, displayName);
    await this.api.store.transaction(async (tx) => {
      const now = (await tx.get(openKey(user.id))) as Open | undefined;
      // What a change since then left is that one's to do.
      if (now?.change === change) await tx.delete(openKey(user.id));
    });
  }

  async #tie(userId: string, externalId: string | undefined): Promise<void> {
    const { authProvider } = this.manner;
    if (authProvider === undefined || externalId === undefined) return;
    if ((await this.api.getUserByExternalId(authProvider, externalId)) !== userId)
      await this.api.recordUserExternalId(authProvider, externalId, userId);
  }

  /** Whoever was known by an id that is theirs no more does not come to the account by it. */
  async #untie(userId: string, externalId: string | undefined): Promise<void> {
    const { authProvider } = this.manner;
    if (authProvider !== undefined && externalId !== undefined)
      await this.api.forgetUserExternalId(authProvider, externalId, userId);
  }
}

/** Directories like names with a domain: what stands before it is the account's. */
const localpartOf = ({ userName }: Attributes): string => userName.split('@')[0]!.toLowerCase();

const taken = (detail: string): ScimError => new ScimError(409, detail, 'uniqueness');

const gone = (): ScimError => new ScimError(404, 'There is no such user');

/** What is to be done after a change. */
const opened = (open: Open | undefined, before: User, after: User): Open => ({
  change: randomUUID(),
  untie: [...new Set([...(open?.untie ?? []), before.externalId])].filter(
    (id) => id !== undefined && id !== after.externalId,
  ) as string[],
  name: open?.name === true || after.displayName !== before.displayName,
});

/** Whether the name, or the `externalId`, is somebody else's. */
async function isOthers(tx: DocumentStore, { id, userName, externalId }: User): Promise<boolean> {
  const owners = [
    await tx.get(nameKey(userName)),
    externalId === undefined ? undefined : await tx.get(externalKey(externalId)),
  ];
  return owners.some((owner) => owner !== undefined && owner !== id);
}

async function write(tx: DocumentStore, user: User): Promise<void> {
  await tx.put(keyOf(user.id), user);
  await tx.put(nameKey(user.userName), user.id);
  await tx.put(accountKey(user.userId), user.id);
  if (user.externalId !== undefined) await tx.put(externalKey(user.externalId), user.id);
}

async function forget(tx: DocumentStore, user: User): Promise<void> {
  await tx.delete(keyOf(user.id));
  await tx.delete(nameKey(user.userName));
  await tx.delete(accountKey(user.userId));
  if (user.externalId !== undefined) await tx.delete(externalKey(user.externalId));
}
