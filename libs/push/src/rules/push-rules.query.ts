import type { Db, Tx } from '@rookery/database';
import {
  presentRuleId,
  type PushAction,
  type PushCondition,
  type RuleChanges,
  type RuleKind,
  ruleKinds,
  type UserRule,
} from '@rookery/push-rules';

/** What the column `priority_class` holds, by kind. */
const priorityClasses: Readonly<Record<RuleKind, number>> = {
  underride: 1,
  sender: 2,
  room: 3,
  content: 4,
  override: 5,
  // Holds rules of the server only: whichever of them a user changed is told by its id.
  postcontent: 6,
};

interface RuleRow {
  readonly user_name: string;
  readonly rule_id: string;
  readonly priority_class: number;
  readonly priority: number;
  readonly conditions: string;
  readonly actions: string;
}

interface EnabledRow {
  readonly user_name: string;
  readonly rule_id: string;
  readonly enabled: number;
}

interface StoredChanges {
  readonly rules: UserRule[];
  readonly enabled: Map<string, boolean>;
  readonly actions: Map<string, PushAction[]>;
}

/** How a rule is named in the tables: `global/override/.m.rule.master`. */
const storedId = (kind: RuleKind, ruleId: string): string => `global/${kind}/${ruleId}`;
const plainId = (stored: string): string => stored.split('/').slice(2).join('/');

/** What users changed, in two queries for all of them; users who changed nothing are absent. */
export async function ruleChanges(db: Db, userIds: readonly string[]): Promise<Map<string, RuleChanges>> {
  const of = db.dialect.anyOf('user_name');
  const rules = await db.query<RuleRow>(
    `SELECT user_name, rule_id, priority_class, priority, conditions, actions FROM push_rules WHERE ${of}
     ORDER BY user_name, priority_class DESC, priority DESC, rule_id`,
    [userIds],
  );
  const switches = await db.query<EnabledRow>(`SELECT user_name, rule_id, enabled FROM push_rules_enable WHERE ${of}`, [
    userIds,
  ]);
  // Rules of different kinds may have the same id: what is switched is told by the id as it is stored.
  const own = new Map<string, boolean>();
  const users = new Map<string, StoredChanges>();
  const changesOf = (userId: string): StoredChanges => {
    let changes = users.get(userId);
    if (changes === undefined) users.set(userId, (changes = { rules: [], enabled: new Map(), actions: new Map() }));
    return changes;
  };
  for (const row of switches) {
    const ruleId = presentRuleId(plainId(row.rule_id));
    if (ruleId.startsWith('.')) changesOf(row.user_name).enabled.set(ruleId, row.enabled !== 0);
    else own.set(`${row.user_name} ${row.rule_id}`, row.enabled !== 0);
  }
  for (const row of rules) {
    const kind = ruleKinds.find((each) => priorityClasses[each] === row.priority_class);
    if (kind === undefined) continue;
    const ruleId = presentRuleId(plainId(row.rule_id));
    const actions = JSON.parse(row.actions) as PushAction[];
    const changes = changesOf(row.user_name);
    if (ruleId.startsWith('.')) changes.actions.set(ruleId, actions);
    else {
      const rule = userRule(kind, ruleId, actions, JSON.parse(row.conditions) as PushCondition[]);
      changes.rules.push(own.get(`${row.user_name} ${row.rule_id}`) === false ? { ...rule, enabled: false } : rule);
    }
  }
  return users;
}

/** The tables keep a content rule's pattern as a condition, and the ids of room and sender rules likewise. */
function userRule(
  kind: RuleKind,
  ruleId: string,
  actions: readonly PushAction[],
  conditions: readonly PushCondition[],
): UserRule {
  if (kind === 'content') return { kind, ruleId, actions, pattern: conditions[0]?.pattern ?? '' };
  if (kind === 'override' || kind === 'underride') return { kind, ruleId, actions, conditions };
  return { kind, ruleId, actions };
}

function conditionsOf(rule: UserRule): readonly PushCondition[] {
  switch (rule.kind) {
    case 'content':
      return [{ kind: 'event_match', key: 'content.body', pattern: rule.pattern ?? '' }];
    case 'room':
      return [{ kind: 'event_match', key: 'room_id', pattern: rule.ruleId }];
    case 'sender':
      return [{ kind: 'event_match', key: 'user_id', pattern: rule.ruleId }];
    default:
      return rule.conditions ?? [];
  }
}

/** Writes the user's own rules of one kind in their order, the most important first. */
export async function writeRules(tx: Tx, userId: string, kind: RuleKind, rules: readonly UserRule[]): Promise<void> {
  await tx.run(`DELETE FROM push_rules WHERE user_name = ? AND priority_class = ? AND rule_id NOT LIKE ?`, [
    userId,
    priorityClasses[kind],
    `${storedId(kind, '.')}%`,
  ]);
  await tx.insertMany(
    'push_rules',
    ['user_name', 'rule_id', 'priority_class', 'priority', 'conditions', 'actions'],
    rules.map((rule, index) => [
      userId,
      storedId(kind, rule.ruleId),
      priorityClasses[kind],
      rules.length - index,
      JSON.stringify(conditionsOf(rule)),
      JSON.stringify(rule.actions),
    ]),
  );
}

/** Gives a rule of the server other actions. */
export async function writeDefaultActions(
  tx: Tx,
  userId: string,
  kind: RuleKind,
  ruleId: string,
  actions: readonly PushAction[],
): Promise<void> {
  await tx.run(
    `INSERT INTO push_rules (user_name, rule_id, priority_class, priority, conditions, actions) VALUES (?, ?, ?, 0, '[]', ?)
     ON CONFLICT (user_name, rule_id) DO UPDATE SET actions = excluded.actions`,
    [userId, storedId(kind, ruleId), priorityClasses[kind], JSON.stringify(actions)],
  );
}

/** Switches a rule on or off. */
export async function writeEnabled(
  tx: Tx,
  userId: string,
  kind: RuleKind,
  ruleId: string,
  enabled: boolean,
): Promise<void> {
  await tx.run(
    `INSERT INTO push_rules_enable (user_name, rule_id, enabled) VALUES (?, ?, ?)
     ON CONFLICT (user_name, rule_id) DO UPDATE SET enabled = excluded.enabled`,
    [userId, storedId(kind, ruleId), enabled ? 1 : 0],
  );
}

/** Forgets whether a rule is on. */
export async function deleteEnabled(tx: Tx, userId: string, kind: RuleKind, ruleId: string): Promise<void> {
  await tx.run(`DELETE FROM push_rules_enable WHERE user_name = ? AND rule_id = ?`, [userId, storedId(kind, ruleId)]);
}

/** Forgets all that a user changed. @returns whether there was anything */
export async function deleteAllRules(tx: Tx, userId: string): Promise<boolean> {
  const rules = await tx.run('DELETE FROM push_rules WHERE user_name = ?', [userId]);
  return (await tx.run('DELETE FROM push_rules_enable WHERE user_name = ?', [userId])) + rules > 0;
}

/** Notes that a user's rules changed. */
export async function writePosition(tx: Tx, userId: string, streamId: number): Promise<void> {
  await tx.run(
    `INSERT INTO push_rules_stream (user_id, stream_id) VALUES (?, ?)
     ON CONFLICT (user_id) DO UPDATE SET stream_id = excluded.stream_id`,
    [userId, streamId],
  );
}

/** When a user's rules changed last; 0 when they never did. */
export async function lastPosition(db: Db, userId: string): Promise<number> {
  return (
    (await db.get<{ stream_id: number }>(`SELECT stream_id FROM push_rules_stream WHERE user_id = ?`, [userId]))
      ?.stream_id ?? 0
  );
}

/** The furthest position of anybody's change. */
export async function highestPosition(db: Db): Promise<number> {
  return (
    (await db.get<{ highest: number | null }>(`SELECT MAX(stream_id) AS highest FROM push_rules_stream`))?.highest ?? 0
  );
}

/** Everybody who ever changed a rule. */
export async function usersWithChanges(db: Db): Promise<string[]> {
  const rows = await db.query<{ user_name: string }>(
    'SELECT user_name FROM push_rules UNION SELECT user_name FROM push_rules_enable',
  );
  return rows.map((row) => row.user_name);
}

/** Everybody whose rules changed last behind a position. */
export async function usersChangedBehind(db: Db, position: number): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>('SELECT user_id FROM push_rules_stream WHERE stream_id > ?', [
    position,
  ]);
  return rows.map((row) => row.user_id);
}
