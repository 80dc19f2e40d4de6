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
const pageSize = 500;

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
      if ((await tx.get(accountKey(userId))) !== undefined) return true;
      await write(tx, user);
      return false;
    });
    if (isTaken) throw taken('The account belongs to somebody else in the directory');
    await this.api.invalidateCache('active', userId);
    await this.#tie(user);
    return user;
  }

  /** @throws ScimError 409 when the name or the `externalId` is taken */
  async change(user: User, attributes: Attributes): Promise<User> {
    await this.#assertFree(attributes, user);
    const { userName, externalId, displayName, emails, active } = attributes;
    const now = { ...user, ...{ userName, externalId, displayName, emails, active } };
    const next: User = { ...now, modifiedMs: this.api.getCurrentTimeMsec() };
    await this.api.store.transaction(async (tx) => {
      await forget(tx, user);
      await write(tx, next);
    });
    // Before anything that may fail: whoever is switched off is out at once.
    await this.api.invalidateCache('active', user.userId);
    if (displayName !== undefined && displayName !== user.displayName)
      await this.api.setDisplayname(user.userId, displayName);
    if (externalId !== user.externalId) await this.#tie(next);
    return next;
  }

  /** Closes the account for good. */
  async remove(user: User): Promise<void> {
    await this.api.deactivateUser(user.userId);
    await this.api.store.transaction((tx) => forget(tx, user));
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
    try {
      return await this.api.registerUser(localpart, { ...(displayName === undefined ? {} : { displayName }), emails });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      const known = await this.api.checkUserExists(this.api.getQualifiedUserId(localpart)).catch(() => undefined);
      if (known !== undefined && this.manner.adopt) return known;
      if (known !== undefined) throw taken('An account of this name is here already');
      throw new ScimError(400, error.message, 'invalidValue');
    }
  }

  async #tie({ externalId, userId }: User): Promise<void> {
    const { authProvider } = this.manner;
    if (authProvider !== undefined && externalId !== undefined)
      await this.api.recordUserExternalId(authProvider, externalId, userId);
  }
}

/** Directories like names with a domain: what stands before it is the account's. */
const localpartOf = ({ userName }: Attributes): string => userName.split('@')[0]!.toLowerCase();

const taken = (detail: string): ScimError => new ScimError(409, detail, 'uniqueness');

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
