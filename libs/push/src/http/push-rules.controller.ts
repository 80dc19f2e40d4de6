import { Controller, Delete, Get, Param, Put } from '@nestjs/common';
import { Access, type Infer, type InferQuery, json, JsonBody, param, Query, queryOf, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { isRuleKind, type PushAction, type PushRule, type RuleKind, type Ruleset } from '@rookery/push-rules';
import type { Requester } from '@rookery/platform';
import { PushRulesService } from '../rules/push-rules.service.js';

const ruleBody = json.object({
  actions: json.optional('What happens when the rule applies; it must be there.', json.array(json.unknown())),
  conditions: json.optional(
    'What must be so for an `override` or `underride` rule to apply; always unless given.',
    json.array(json.unknown()),
  ),
  pattern: json.optional('What the text must match for a `content` rule to apply.', json.string()),
});
const enabledSchema = json.object({ enabled: json.required('Whether the rule is in force.', json.boolean()) });
const actionsSchema = json.object({
  actions: json.required('What happens when the rule applies.', json.array(json.unknown())),
});

/** @throws MatrixError 400 `M_UNRECOGNIZED` for a scope or kind that does not exist */
function kindOf(scope: string, kind: string): RuleKind {
  if (scope !== 'global' || !isRuleKind(kind)) throw MatrixError.unrecognizedKind('Unknown kind of push rules');
  return kind;
}

const putQuery = queryOf({
  before: param.string('The rule that it comes right before.'),
  after: param.string('The rule that it comes right after.'),
});

/** Reading and changing push rules. */
@Controller()
export class PushRulesController {
  constructor(private readonly rules: PushRulesService) {}

  /** GET /_matrix/client/v3/pushrules/ */
  @Get(stable('/pushrules'))
  @Access({ auth: 'required', anyProcess: true })
  async all(@Who() requester: Requester): Promise<{ global: Ruleset }> {
    return { global: await this.rules.ruleset(requester.userId) };
  }

  /** GET /_matrix/client/v3/pushrules/global/ */
  @Get(stable('/pushrules/global'))
  @Access({ auth: 'required', anyProcess: true })
  ruleset(@Who() requester: Requester): Promise<Ruleset> {
    return this.rules.ruleset(requester.userId);
  }

  /** GET /_matrix/client/v3/pushrules/global/{kind} */
  @Get(stable('/pushrules/:scope/:kind'))
  @Access({ auth: 'required', anyProcess: true })
  async kind(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
  ): Promise<readonly PushRule[]> {
    return (await this.rules.ruleset(requester.userId))[kindOf(scope, kind)] ?? [];
  }

  /** GET /_matrix/client/v3/pushrules/global/{kind}/{ruleId} */
  @Get(stable('/pushrules/:scope/:kind/:ruleId'))
  @Access({ auth: 'required', anyProcess: true })
  rule(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
  ): Promise<PushRule> {
    return this.rules.rule(requester.userId, kindOf(scope, kind), ruleId);
  }

  /** PUT /_matrix/client/v3/pushrules/global/{kind}/{ruleId} */
  @Put(stable('/pushrules/:scope/:kind/:ruleId'))
  @Access({ auth: 'required', anyProcess: true })
  async put(
    @Who() requester: Requester,
    @Query(putQuery) query: InferQuery<typeof putQuery>,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
    @JsonBody(ruleBody, { wrongType: 'M_INVALID_PARAM' }) body: Infer<typeof ruleBody>,
  ): Promise<object> {
    await this.rules.put(requester.userId, kindOf(scope, kind), ruleId, body, query);
    return {};
  }

  /** DELETE /_matrix/client/v3/pushrules/global/{kind}/{ruleId} */
  @Delete(stable('/pushrules/:scope/:kind/:ruleId'))
  @Access({ auth: 'required', anyProcess: true })
  async delete(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
  ): Promise<object> {
    await this.rules.delete(requester.userId, kindOf(scope, kind), ruleId);
    return {};
  }

  /** GET /_matrix/client/v3/pushrules/global/{kind}/{ruleId}/enabled */
  @Get(stable('/pushrules/:scope/:kind/:ruleId/enabled'))
  @Access({ auth: 'required', anyProcess: true })
  async enabled(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
  ): Promise<{ enabled: boolean }> {
    return { enabled: (await this.rules.rule(requester.userId, kindOf(scope, kind), ruleId)).enabled };
  }

  /** PUT /_matrix/client/v3/pushrules/global/{kind}/{ruleId}/enabled */
  @Put(stable('/pushrules/:scope/:kind/:ruleId/enabled'))
  @Access({ auth: 'required', anyProcess: true })
  async setEnabled(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
    @JsonBody(enabledSchema) body: Infer<typeof enabledSchema>,
  ): Promise<object> {
    await this.rules.setEnabled(requester.userId, kindOf(scope, kind), ruleId, body.enabled);
    return {};
  }

  /** GET /_matrix/client/v3/pushrules/global/{kind}/{ruleId}/actions */
  @Get(stable('/pushrules/:scope/:kind/:ruleId/actions'))
  @Access({ auth: 'required', anyProcess: true })
  async actions(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
  ): Promise<{ actions: readonly PushAction[] }> {
    return { actions: (await this.rules.rule(requester.userId, kindOf(scope, kind), ruleId)).actions };
  }

  /** PUT /_matrix/client/v3/pushrules/global/{kind}/{ruleId}/actions */
  @Put(stable('/pushrules/:scope/:kind/:ruleId/actions'))
  @Access({ auth: 'required', anyProcess: true })
  async setActions(
    @Who() requester: Requester,
    @Param('scope') scope: string,
    @Param('kind') kind: string,
    @Param('ruleId') ruleId: string,
    @JsonBody(actionsSchema) body: Infer<typeof actionsSchema>,
  ): Promise<object> {
    await this.rules.setActions(requester.userId, kindOf(scope, kind), ruleId, body.actions);
    return {};
  }
}
