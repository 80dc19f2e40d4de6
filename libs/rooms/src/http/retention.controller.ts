import { Controller, Get } from '@nestjs/common';
import { Access, client } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';

/** Tells clients for how long messages are kept (MSC1763). */
@Controller()
export class RetentionController {
  constructor(private readonly config: Config) {}

  /** GET /_matrix/client/unstable/org.matrix.msc1763/retention/configuration */
  @Get(client(['unstable'], '/org.matrix.msc1763/retention/configuration'))
  @Access({ auth: 'required' })
  configuration(): object {
    const { config } = this;
    if (!config.get('experimental_features.msc1763_enabled') || !config.get('retention.enabled'))
      throw MatrixError.unrecognized();
    const policy = defined({
      min_lifetime: config.get('retention.default_policy.min_lifetime'),
      max_lifetime: config.get('retention.default_policy.max_lifetime'),
    });
    const bounds = defined({
      min: config.get('retention.allowed_lifetime_min'),
      max: config.get('retention.allowed_lifetime_max'),
    });
    return { policies: { '*': policy }, limits: Object.keys(bounds).length > 0 ? { max_lifetime: bounds } : {} };
  }
}

const defined = (values: Readonly<Record<string, number | undefined>>): object =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => typeof value === 'number'));
