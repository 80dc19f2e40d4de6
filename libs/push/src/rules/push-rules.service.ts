import { createHash } from 'node:crypto';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import {
  buildRuleset,
  type CompiledRuleset,
  compileRuleset,
  defaultRuleKinds,
  noRuleChanges,
  parseActions,
  parseUserRule,
  type PushRule,
  type RuleKind,
  type RuleChanges,
  type RuleFeatures,
  type Ruleset,
  type UserRule,
} from '@rookery/push-rules';
import { Cache, Config, type Soon } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { RoomHooks } from '@rookery/rooms';
import { AccountDataService, holdAccount, UserHooks } from '@rookery/users';
import { rulesWithSuccessor } from './followed-room.js';
import { OwnRules, type Regrouped, type RuleGroup } from './own-rules.js';
import { selectGroups } from './rule-groups.query.js';
import {
  deleteAllRules,
  deleteEnabled,
  highestPosition,
  lastPosition,
  ruleChanges,
  usersChangedBehind,
  usersWithChanges,
  writeDefaultActions,
  writeEnabled,
  writePosition,
  writeRules,
} from './push-rules.query.js';

const maxBytes = 64 * 1024 * 1024;

/** No event can name this user, so the rules of this one hold for all whom it does not name. */
export const nobody = '@:';

/** A ruleset ready for evaluation. */
export interface ReadyRules {
  /** For events that name the user. */
  readonly rules: CompiledRuleset;
  /** For others: one and the same for all users with the same changes. */
  readonly unnamed: CompiledRuleset;
  /** Some rule asks for the user's name in the room. */
  readonly needsDisplayName: boolean;
}

interface Cached {
  readonly compiled: ReadyRules;
  readonly sizeBytes: number;
}

/** Changes of push rules, by user. */
export const pushRulesStream = defineStream({
  name: 'push_rules',
  takenUpTo: highestPosition,
  anyProcess: true,
  keys: { user: {} },
});

/** Where a new rule goes. */
export interface RulePlace {
  /** Right above this rule of the same kind. */
  readonly before?: string | undefined;
  /** Right below this one. */
  readonly after?: string | undefined;
}

/**
 * The push rules of users. The stream `push_rules` numbers the changes.
 * @spec client-server-api#push-rules
 */
@Injectable()
export class PushRulesService implements OnModuleInit {
  readonly #compiled: Cache<string, Cached>;
  readonly stream: Stream<'user'>;
  readonly #changes: ChangedKeys;
  /** Rulesets for users whom an event does not name, by what was changed. */
  readonly #unnamed: Cache<string, CompiledRuleset>;
  #ownRules = this.#newOwnRules([]);
  /** Behind this position users may have changed rules of whom nothing was told, where something was missed since the last look. */
  #knownUpTo = 0;
  #missed = 0;
  /** What this server's rules are about beyond the specification. */
  readonly features: RuleFeatures;
  /** What holds for everybody who has changed no rule, and whom an event does not name. */
  readonly defaults: CompiledRuleset;

  constructor(
    private readonly database: Database,
    private readonly accountData: AccountDataService,
    private readonly roomHooks: RoomHooks,
    private readonly userHooks: UserHooks,
    private readonly config: Config,
    streams: Streams,
  ) {
    this.#compiled = new Cache(config, 'push_rules', {
      ...{ invalidation: 'stream push_rules', elsewhere: 'told', max: 2 * maxBytes },
      sizeOf: (entry) => entry.sizeBytes,
    });
    this.#unnamed = new Cache(config, 'push_rules_without_names', {
      ...{ invalidation: 'never', max: maxBytes / 2 },
      sizeOf: (rules) => 1_024 * rules.length,
    });
    this.stream = streams.of(pushRulesStream);
    this.#changes = this.stream.changes('user');
    this.stream.onHeard((changed) => {
      if (changed === undefined) {
        this.#compiled.clear();
        this.#missed++;
      } else if (this.#missed === 0) this.#knownUpTo = this.stream.current();
      for (const userId of changed?.user ?? []) this.#forget(userId);
    });
    this.features = {
      legacyMentions: !config.get('experimental_features.msc4210_enabled'),
      threads: config.get('experimental_features.msc4306_enabled'),
      polls: config.get('experimental_features.msc3381_polls_enabled'),
      replies: config.get('experimental_features.msc3664_enabled'),
      calls: config.get('experimental_features.msc4075_enabled'),
      encryptedEvents: config.get('experimental_features.msc4028_push_encrypted_events'),
    };
    this.defaults = compileRuleset(buildRuleset(nobody, noRuleChanges, this.features));
  }

  async onModuleInit(): Promise<void> {
    this.#knownUpTo = this.stream.current();
    // What is told while it is read would be lost with what it is told to.
    if (this.stream.isShared) this.#missed++;
    this.#ownRules = this.#newOwnRules(await usersWithChanges(this.database));
    this.roomHooks.subscribe({ onFollowed: (...args) => this.#takeAlong(...args) });
    this.userHooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => this.#deleteAll(tx, userId) });
    this.accountData.serve('m.push_rules', async (userId) => this.content(userId));
  }

  /** A user's whole ruleset. */
  async ruleset(userId: string): Promise<Ruleset> {
    return buildRuleset(userId, await this.#changesOf(userId), this.features);
  }

  /** The account data event `m.push_rules`. */
  async content(userId: string): Promise<JsonObject> {
    return { global: await this.ruleset(userId) };
  }

  /** Whether a user's rules changed in `(after, upTo]`; costs a query only when they may have. */
  async changedBetween(userId: string, after: number, upTo: number): Promise<boolean> {
    if (!this.#changes.hasChanged(userId, after)) return false;
    const position = await lastPosition(this.database, userId);
    return position > after && position <= upTo;
  }

  /** Finds out what the changes of a room's members are about, where that is not known; two queries for all of them. */
  learn(members: ReadonlySet<string>): Soon<unknown> {
    if (this.#missed > 0) return this.#readMissed().then(() => this.learn(members));
    const unknown = this.#ownRules.unknownAmong(members);
    return unknown.length === 0 ? undefined : this.compiled(unknown);
  }

  /**
   * Members of a room whose rules have to be looked at one by one for what somebody sends there. Whoever is neither here nor
   * in a group, and whom the event does not name, has the default rules.
   */
  aloneAmong(members: ReadonlySet<string>, roomId: string, sender: string): Set<string> {
    return this.#ownRules.aloneAmong(members, roomId, sender);
  }

  /** Gets a room's groups ready for {@link groupsAt}; costs a query where that was not done before. */
  readGroups(roomId: string): Soon<unknown> {
    return this.#ownRules.hasUnreadGroups(roomId) ? this.#readGroups(roomId) : undefined;
  }

  /** Users whose changes about a room are the same; also those who are not in it. */
  groupsAt(roomId: string): readonly RuleGroup[] {
    return this.#ownRules.groupsAt(roomId);
  }

  /** Who is in another group of a room than the tables say. */
  unsavedGroupsAt(roomId: string): Regrouped {
    return this.#ownRules.unsavedAt(roomId);
  }

  /** The tables say so now. */
  groupsSaved(roomId: string, regrouped: Regrouped): void {
    this.#ownRules.saved(roomId, regrouped);
  }

  /** The tables say nothing about a room any more. */
  forgetGroups(roomId: string): void {
    this.#ownRules.forget(roomId);
  }

  /** Rulesets ready for evaluation; what is not in memory comes in two queries for all users. */
  async compiled(userIds: Iterable<string>): Promise<Map<string, ReadyRules>> {
    const result = new Map<string, ReadyRules>();
    const missing: string[] = [];
    for (const userId of userIds) {
      const cached = this.#compiled.get(userId);
      if (cached) result.set(userId, cached.compiled);
      else missing.push(userId);
    }
    if (missing.length === 0) return result;
    const before = this.stream.current();
    const changes = await ruleChanges(this.database, missing);
    for (const userId of missing) {
      const own = changes.get(userId) ?? noRuleChanges;
      const needsDisplayName = own.rules.some((rule) =>
        rule.conditions?.some(({ kind }) => kind === 'contains_display_name'),
      );
      const compiled = readyRules(this.#unnamedRules(own), needsDisplayName, () =>
        compileRuleset(buildRuleset(userId, own, this.features)),
      );
      result.set(userId, compiled);
      // Rules that changed while they were read may be old already.
      if (!this.#changes.hasChanged(userId, before) || before < this.#changes.earliestKnown) {
        this.#compiled.set(userId, { compiled, sizeBytes: 4_096 + 1_024 * own.rules.length });
        this.#ownRules.learn(userId, own);
      }
    }
    return result;
  }

  /** One rule. @throws MatrixError 404 `M_NOT_FOUND` */
  async rule(userId: string, kind: RuleKind, ruleId: string): Promise<PushRule> {
    return find(await this.ruleset(userId), kind, ruleId);
  }

  /**
   * Makes or changes a rule of the user's own.
   * @throws MatrixError 400 `M_INVALID_PARAM`, `M_UNKNOWN` (no such rule of the user's own to stand before or after), 413
   *   `M_TOO_LARGE`
   */
  async put(userId: string, kind: RuleKind, ruleId: string, body: unknown, place: RulePlace): Promise<void> {
    const parsed = parseUserRule(kind, ruleId, body);
    if (!parsed.ok) throw MatrixError.invalidParam(parsed.reason);
    const maxIdBytes = this.config.get('push_rules.limits.rule_id_length');
    if (Buffer.byteLength(ruleId) > maxIdBytes)
      throw MatrixError.tooLarge(`The id of a push rule has at most ${maxIdBytes} bytes`);
    this.#checkSize(parsed.value);
    await this.#change(userId, async (tx, changes) => {
      const maxUserRules = this.#maxUserRules;
      const others = changes.rules.filter((rule) => rule.kind === kind && rule.ruleId !== ruleId);
      const isNew = !changes.rules.some((rule) => rule.kind === kind && rule.ruleId === ruleId);
      if (isNew && changes.rules.length >= maxUserRules)
        throw MatrixError.tooLarge(`Not more than ${maxUserRules} push rules can be stored`);
      const old = changes.rules.filter((rule) => rule.kind === kind).findIndex((rule) => rule.ruleId === ruleId);
      const at = placeOf(others, place) ?? (isNew ? 0 : old);
      await writeRules(tx, userId, kind, others.toSpliced(at, 0, parsed.value));
      if (isNew) await deleteEnabled(tx, userId, kind, ruleId);
    });
  }

  /** Deletes a rule of the user's own. @throws MatrixError 404 `M_NOT_FOUND`, also for a rule of the server */
  async delete(userId: string, kind: RuleKind, ruleId: string): Promise<void> {
    await this.#change(userId, async (tx, changes) => {
      const rules = changes.rules.filter((rule) => rule.kind === kind);
      // None of the server's is among them.
      if (!rules.some((rule) => rule.ruleId === ruleId)) throw unknownRule();
      await writeRules(
        tx,
        userId,
        kind,
        rules.filter((rule) => rule.ruleId !== ruleId),
      );
      await deleteEnabled(tx, userId, kind, ruleId);
    });
  }

  /** Switches a rule on or off. @throws MatrixError 404 `M_NOT_FOUND` */
  async setEnabled(userId: string, kind: RuleKind, ruleId: string, enabled: boolean): Promise<void> {
    await this.#change(userId, async (tx, changes) => {
      find(buildRuleset(userId, changes, this.features), kind, ruleId);
      await writeEnabled(tx, userId, kind, ruleId, enabled);
    });
  }

  /** Gives a rule other actions. @throws MatrixError 404 `M_NOT_FOUND`, 400 `M_INVALID_PARAM`, 413 `M_TOO_LARGE` */
  async setActions(userId: string, kind: RuleKind, ruleId: string, actions: unknown): Promise<void> {
    const parsed = parseActions(actions);
    if (!parsed.ok) throw MatrixError.invalidParam(parsed.reason);
    await this.#change(userId, async (tx, changes) => {
      find(buildRuleset(userId, changes, this.features), kind, ruleId);
      if (defaultRuleKinds.has(ruleId)) await writeDefaultActions(tx, userId, kind, ruleId, parsed.value);
      else {
        const rules = changes.rules
          .filter((rule) => rule.kind === kind)
          .map((rule) => (rule.ruleId === ruleId ? { ...rule, actions: parsed.value } : rule));
        for (const rule of rules) if (rule.ruleId === ruleId) this.#checkSize(rule);
        await writeRules(tx, userId, kind, rules);
      }
    });
  }

  get #maxUserRules(): number {
    return this.config.get('push_rules.limits.rule_count');
  }

  /** @throws MatrixError 413 `M_TOO_LARGE` */
  #checkSize({ conditions, pattern, actions }: UserRule): void {
    const maxBytes = this.config.get('push_rules.limits.rule_size');
    const text = JSON.stringify(conditions ?? (pattern === undefined ? [] : [pattern])) + JSON.stringify(actions);
    if (Buffer.byteLength(text) > maxBytes)
      throw MatrixError.tooLarge(`Conditions and actions of a push rule have at most ${maxBytes} bytes`);
  }

  /** Says about a room what the user's rules say about the one that it replaces. */
  async #takeAlong(userId: string, oldRoomId: string, newRoomId: string): Promise<void> {
    const moved = ({ rules }: RuleChanges): Map<RuleKind, UserRule[]> =>
      rulesWithSuccessor(rules, oldRoomId, newRoomId, this.#maxUserRules);
    if (moved(await this.#changesOf(userId)).size === 0) return;
    await this.#change(userId, async (tx, changes) => {
      for (const [kind, rules] of moved(changes)) await writeRules(tx, userId, kind, rules);
    });
  }

  #newOwnRules(userIds: Iterable<string>): OwnRules {
    return new OwnRules(userIds, (changes) => this.#unnamedRules(changes));
  }

  #unnamedRules(changes: RuleChanges): CompiledRuleset {
    const text = JSON.stringify([changes.rules, [...changes.enabled].toSorted(), [...changes.actions].toSorted()]);
    const key = createHash('sha256').update(text).digest('base64');
    let rules = this.#unnamed.get(key);
    if (rules === undefined)
      this.#unnamed.set(key, (rules = compileRuleset(buildRuleset(nobody, changes, this.features))));
    return rules;
  }

  #forget(userId: string): void {
    this.#compiled.delete(userId);
    this.#ownRules.changed(userId);
  }

  /** Whose rules others have changed while nothing was heard of it. */
  async #readMissed(): Promise<void> {
    const [missed, upTo] = [this.#missed, this.stream.current()];
    for (const userId of await usersChangedBehind(this.database, this.#knownUpTo)) this.#forget(userId);
    this.#knownUpTo = upTo;
    // Something else may have been missed meanwhile.
    if (this.#missed === missed) this.#missed = 0;
  }

  async #readGroups(roomId: string): Promise<void> {
    this.#ownRules.read(roomId, await selectGroups(this.database, roomId));
  }

  async #changesOf(userId: string): Promise<RuleChanges> {
    return (await ruleChanges(this.database, [userId])).get(userId) ?? noRuleChanges;
  }

  async #change(userId: string, change: (tx: Tx, changes: RuleChanges) => Promise<void>): Promise<void> {
    const position = await this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        // Written first, so that a second change of the same user's rules waits for this one.
        const streamId = await this.#tell(tx, userId);
        await change(tx, (await ruleChanges(tx, [userId])).get(userId) ?? noRuleChanges);
        return streamId;
      },
      { name: 'push_rules', anyProcess: this.stream.isWrittenHere },
    );
    await this.stream.heardAtWriter(position);
  }

  /** Rules name rooms, people and words: they go with the account. */
  async #deleteAll(tx: Tx, userId: string): Promise<void> {
    if (await deleteAllRules(tx, userId)) await this.#tell(tx, userId);
  }

  /** Tells that a user's rules change with a transaction. @returns its place in the stream */
  async #tell(tx: Tx, userId: string): Promise<number> {
    // What is told to others comes after what is forgotten here.
    tx.unlessRolledBack(() => this.#forget(userId));
    const streamId = await this.stream.write(tx, { changed: { user: [userId] }, users: [userId] });
    await writePosition(tx, userId, streamId);
    return streamId;
  }
}

/** Most users are never named: what is only for events that do it is made when one comes. */
function readyRules(unnamed: CompiledRuleset, needsDisplayName: boolean, compile: () => CompiledRuleset): ReadyRules {
  let rules: CompiledRuleset | undefined;
  return {
    unnamed,
    needsDisplayName,
    get rules() {
      return (rules ??= compile());
    },
  };
}

function find(ruleset: Ruleset, kind: RuleKind, ruleId: string): PushRule {
  const rule = ruleset[kind]?.find((each) => each.rule_id === ruleId);
  if (rule === undefined) throw unknownRule();
  return rule;
}

const unknownRule = (): MatrixError => MatrixError.notFound('Unknown push rule');

/** The index at which a rule goes among the others; `undefined` when nothing was said. */
function placeOf(others: readonly UserRule[], place: RulePlace): number | undefined {
  const name = place.before ?? place.after;
  if (name === undefined) return undefined;
  const index = others.findIndex((rule) => rule.ruleId === name);
  if (index === -1) throw MatrixError.badRequest('The rule to stand before or after is none of your own');
  return place.before === undefined ? index + 1 : index;
}
