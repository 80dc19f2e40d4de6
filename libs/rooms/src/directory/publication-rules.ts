import { Injectable } from '@nestjs/common';
import { matchesGlob } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';

interface Rule {
  readonly user_id?: string | undefined;
  readonly alias?: string | undefined;
  readonly room_id?: string | undefined;
  readonly action?: string | undefined;
}

/** What the settings say about who may make which alias and publish which room. */
@Injectable()
export class PublicationRules {
  constructor(private readonly config: Config) {}

  mayMakeAlias(userId: string, roomId: string, alias: string): boolean {
    const rules = this.config.get('alias_creation_rules') as readonly Rule[] | undefined;
    return rules === undefined || decide(rules, userId, roomId, [alias]);
  }

  /** @param isAdmin administrators may publish any room */
  mayPublish(userId: string, roomId: string, aliases: readonly string[], isAdmin: boolean): boolean {
    if (isAdmin) return true;
    const rules = this.config.get('room_list_publication_rules') as readonly Rule[] | undefined;
    return rules !== undefined && decide(rules, userId, roomId, aliases);
  }
}

/** The first rule that matches decides; none matches: no. */
function decide(rules: readonly Rule[], userId: string, roomId: string, aliases: readonly string[]): boolean {
  for (const rule of rules) {
    if (!matchesGlob(rule.user_id ?? '*', userId) || !matchesGlob(rule.room_id ?? '*', roomId)) continue;
    const glob = rule.alias ?? '*';
    if (glob !== '*' && !aliases.some((alias) => matchesGlob(glob, alias))) continue;
    return rule.action !== 'deny';
  }
  return false;
}
