"""Quality of compression, measured over HTTP: answers, evidence and exact pairs, beside baselines computed here."""
