import { Module } from '@nestjs/common';
import { UsageReporter } from './usage-reporter.service.js';

/** Usage figures for whom the operator chose. */
@Module({ providers: [UsageReporter] })
export class UsageReportModule {}
