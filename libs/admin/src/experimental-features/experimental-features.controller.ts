import { Controller, Get, Param, Put } from '@nestjs/common';
import { type Infer, json, JsonBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { ExperimentalFeatures, type UserFeature, userFeatures } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';

const schema = json.object({
  features: json.required('Whether the user has each of these features, by name.', json.record(json.boolean())),
});

/** Features that are switched on and off for single users. */
@Controller()
@AdminAccess()
export class ExperimentalFeaturesController {
  constructor(
    private readonly users: AdminTargets,
    private readonly features: ExperimentalFeatures,
  ) {}

  /** GET /_synapse/admin/v1/experimental_features/{userId} */
  @Get(admin('v1', '/experimental_features/:userId'))
  async list(@Param('userId') user: string): Promise<object> {
    const chosen = await this.features.chosenFor(this.users.localUserId(user));
    return { features: Object.fromEntries(userFeatures.map((feature) => [feature, chosen.get(feature) ?? false])) };
  }

  /** PUT /_synapse/admin/v1/experimental_features/{userId} */
  @Put(admin('v1', '/experimental_features/:userId'))
  async choose(@Param('userId') user: string, @JsonBody(schema) body: Infer<typeof schema>): Promise<object> {
    const { userId } = await this.users.localAccount(user);
    const wanted = Object.entries(body.features);
    const isKnown = (name: string): name is UserFeature => (userFeatures as readonly string[]).includes(name);
    if (wanted.length === 0) throw MatrixError.badRequest('No feature is named');
    const choice = new Map<UserFeature, boolean>();
    for (const [name, enabled] of wanted) {
      if (!isKnown(name)) throw MatrixError.badRequest(`'${name.slice(0, 100)}' is no feature of users`);
      choice.set(name, enabled);
    }
    await this.features.choose(userId, choice);
    return {};
  }
}
